#include "trace_codec.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>

namespace terrace::tuning {
namespace {

constexpr std::uint64_t ids_max = trace_units_max;
constexpr std::uint64_t positions_max = std::uint64_t{1} << 48;
constexpr std::uint64_t sequences_max = std::uint64_t{1} << 24;
constexpr std::uint64_t times_max = std::uint64_t{1} << 53;

void put(std::string& bytes, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(0x80 | (value & 0x7f)));
  bytes.push_back(static_cast<char>(value));
}

void put_ascending(std::string& bytes, std::span<const std::uint32_t> ids) {
  std::uint32_t last = 0;
  for (const std::uint32_t id : ids) {
    put(bytes, id - last);
    last = id;
  }
}

/// Reads numbers until one does not fit; then all that follow are 0 and good() is false.
class Numbers {
 public:
  Numbers(std::string_view bytes, std::size_t at) : bytes_(bytes), at_(at) {}

  std::uint64_t next() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ >= bytes_.size()) break;
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    good_ = false;
    return 0;
  }

  std::uint32_t next_small() {
    const std::uint64_t value = next();
    if (value > std::numeric_limits<std::uint32_t>::max()) good_ = false;
    return static_cast<std::uint32_t>(value);
  }

  /// A count of things that take at least a byte each.
  std::size_t next_count() {
    const std::uint64_t value = next();
    if (value > bytes_.size() - at_) good_ = false;
    return good_ ? value : 0;
  }

  /// The id after `last`, of ids that ascend.
  std::uint32_t next_above(std::uint32_t last) {
    const std::uint64_t id = std::uint64_t{last} + next_small();
    if (id > std::numeric_limits<std::uint32_t>::max()) good_ = false;
    return static_cast<std::uint32_t>(id);
  }

  void next_ascending(std::span<std::uint32_t> ids) {
    std::uint32_t last = 0;
    for (std::uint32_t& id : ids) id = last = next_above(last);
  }

  [[nodiscard]] bool good() const noexcept { return good_; }
  [[nodiscard]] std::size_t at() const noexcept { return at_; }

 private:
  std::string_view bytes_;
  std::size_t at_;
  bool good_ = true;
};

void encode_tokens(const TraceRecord& record, std::string& bytes) {
  const std::uint32_t* ids = record.positions.data();
  for (const std::uint32_t count : record.head_counts) {
    put(bytes, count);
    put_ascending(bytes, {ids, count});
    ids += count;
  }
}

void encode_units(bool clusters, const TraceRecord& record, std::string& bytes) {
  if (clusters) put(bytes, record.renamed ? 1 : 0);
  put(bytes, record.units.size());
  UnitKey last = 0;
  for (const SelectedUnit& each : record.units) {
    put(bytes, each.unit - last);
    put(bytes, each.rows);
    if (clusters) put(bytes, each.size_rows);
    last = each.unit;
  }
}

/// Whether selections are of units, besides tokens or without them.
bool has_units(const TraceHead& head) {
  return head.unit != TraceUnit::token || head.has_clusters();
}

void encode_selection(const TraceHead& head, const TraceRecord& record, std::string& bytes) {
  put(bytes, record.layer);
  put(bytes, record.position);
  put(bytes, record.sinks_end);
  put(bytes, record.position - record.window_begin);
  put(bytes, record.resident_head);
  put(bytes, record.resident_tail);
  if (head.arrivals) put(bytes, record.arrival_ms ? *record.arrival_ms + 1 : 0);
  if (head.unit == TraceUnit::token) encode_tokens(record, bytes);
  if (has_units(head)) encode_units(head.has_clusters(), record, bytes);
}

void decode_tokens(const TraceHead& head, Numbers& numbers, TraceRecord& record) {
  record.head_counts.resize(head.shape.kv_heads);
  record.positions.clear();
  for (std::uint32_t& count : record.head_counts) {
    count = static_cast<std::uint32_t>(numbers.next_count());
    const std::size_t first = record.positions.size();
    record.positions.resize(first + count);
    numbers.next_ascending(std::span(record.positions).subspan(first));
  }
}

void decode_units(bool clusters, Numbers& numbers, TraceRecord& record) {
  if (clusters) record.renamed = numbers.next() != 0;
  record.units.resize(numbers.next_count());
  UnitKey last = 0;
  for (SelectedUnit& each : record.units) {
    each.unit = last = numbers.next_above(last);
    each.rows = numbers.next_small();
    each.size_rows = clusters ? numbers.next_small() : 0;
  }
}

bool ascend(std::span<const std::uint32_t> ids) {
  return std::ranges::adjacent_find(ids, std::greater_equal{}) == ids.end();
}

const char* flaw_of_units(const TraceHead& head, const TraceRecord& record) {
  const std::span<const SelectedUnit> units = record.units;
  if (std::ranges::adjacent_find(units, std::greater_equal{}, &SelectedUnit::unit) != units.end()) {
    return "units that do not ascend";
  }
  std::uint64_t rows = 0;
  for (const SelectedUnit& each : units) {
    if (each.unit >= ids_max) return "a unit above 2^24";
    if (head.has_clusters() && each.size_rows == 0) return "a cluster without rows";
    rows += each.rows;
  }
  const bool more = head.unit == TraceUnit::token && rows > record.positions.size();
  return more ? "more rows of clusters than positions" : nullptr;
}

const char* flaw_of_tokens(const TraceHead& head, const TraceRecord& record) {
  if (record.head_counts.size() != head.shape.kv_heads) return "other heads than the model's";
  std::span<const std::uint32_t> rest = record.positions;
  for (const std::uint32_t count : record.head_counts) {
    if (count > rest.size()) return "fewer positions than its heads count";
    const auto ids = rest.first(count);
    if (!ascend(ids)) return "positions that do not ascend";
    if (!ids.empty() && ids.back() > record.position) return "a position after its token";
    rest = rest.subspan(count);
  }
  return rest.empty() ? nullptr : "more positions than its heads count";
}

/// Returns the flaw of the fields that all records have which say where a layer is; null without
/// one.
const char* flaw_of_place(const TraceHead& head, const TraceRecord& record) {
  if (record.layer >= head.recorded_layers()) return "a layer that the model has not";
  // In a trace of clusters positions are keys of nothing.
  if (head.unit != TraceUnit::cluster && record.position >= ids_max) return "a position above 2^24";
  if (record.position >= positions_max) return "a position above 2^48";
  return record.window_begin > record.position ? "a window after its token" : nullptr;
}

const char* flaw_of_selection(const TraceHead& head, const TraceRecord& record) {
  if (const char* const flaw = flaw_of_place(head, record)) return flaw;
  if (record.sinks_end > positions_max) return "sinks after position 2^48";
  if (std::max(record.resident_head, record.resident_tail) > positions_max) {
    return "blocks after position 2^48";
  }
  if (record.arrival_ms.value_or(0) >= times_max) return "a time after 2^53 milliseconds";
  const char* const flaw = head.unit == TraceUnit::token ? flaw_of_tokens(head, record) : nullptr;
  return flaw != nullptr || !has_units(head) ? flaw : flaw_of_units(head, record);
}

void decode_selection(const TraceHead& head, Numbers& numbers, TraceRecord& record) {
  record.layer = numbers.next();
  record.position = numbers.next();
  record.sinks_end = numbers.next();
  record.window_begin = record.position - numbers.next();
  record.resident_head = numbers.next();
  record.resident_tail = numbers.next();
  const std::uint64_t arrival = head.arrivals ? numbers.next() : 0;
  record.arrival_ms = arrival > 0 ? std::optional(arrival - 1) : std::nullopt;
  record.positions.clear();
  record.units.clear();
  if (head.unit == TraceUnit::token) decode_tokens(head, numbers, record);
  if (has_units(head)) decode_units(head.has_clusters(), numbers, record);
}

const char* flaw_of_prompt(const TraceHead& head, const TraceRecord& record) {
  if (record.layer >= head.recorded_layers()) return "a layer that the model has not";
  if (record.prompt.end > positions_max) return "a prompt after position 2^48";
  if (record.prompt.begin >= record.prompt.end) return "a prompt without tokens";
  if (record.window_begin > record.prompt.end) return "a window after its prompt";
  return record.placed_begin <= record.window_begin ? nullptr : "a window that was not placed";
}

void encode_prompt(const TraceRecord& record, std::string& bytes) {
  put(bytes, record.layer);
  put(bytes, record.prompt.begin);
  put(bytes, record.prompt.end);
  put(bytes, record.window_begin);
  put(bytes, record.placed_begin);
}

void decode_prompt(Numbers& numbers, TraceRecord& record) {
  record.layer = numbers.next();
  record.prompt.begin = numbers.next();
  record.prompt.end = numbers.next();
  record.window_begin = numbers.next();
  record.placed_begin = numbers.next();
}

void encode_load(const TraceRecord& record, std::string& bytes) {
  put(bytes, record.layer);
  put(bytes, record.position);
  put(bytes, record.position - record.window_begin);
  put(bytes, record.loaded_bytes);
}

void decode_load(Numbers& numbers, TraceRecord& record) {
  record.layer = numbers.next();
  record.position = numbers.next();
  record.window_begin = record.position - numbers.next();
  record.loaded_bytes = numbers.next();
}

}  // namespace

void encode(const TraceHead& head, const TraceRecord& record, std::string& bytes) {
  bytes.push_back(static_cast<char>(record.kind));
  put(bytes, record.sequence);
  switch (record.kind) {
    case TraceRecord::Kind::share:
      put(bytes, record.sharers);
      break;
    case TraceRecord::Kind::prompt:
      encode_prompt(record, bytes);
      break;
    case TraceRecord::Kind::selection:
      encode_selection(head, record, bytes);
      break;
    case TraceRecord::Kind::step_end:
      put(bytes, record.offload_bytes);
      put(bytes, record.index_bytes);
      put(bytes, record.ids_bytes);
      break;
    case TraceRecord::Kind::load:
      encode_load(record, bytes);
      break;
    case TraceRecord::Kind::pause:
    case TraceRecord::Kind::close:
      break;
  }
}

const char* flaw_of(const TraceHead& head, const TraceRecord& record) {
  if (record.sequence >= sequences_max) return "a sequence number above 2^24";
  switch (record.kind) {
    case TraceRecord::Kind::share:
      if (record.sharers > sequences_max) return "a cache that more than 2^24 share";
      return record.sharers > 0 ? nullptr : "a cache without sharers";
    case TraceRecord::Kind::selection:
      return flaw_of_selection(head, record);
    case TraceRecord::Kind::step_end:
      return record.ids_bytes <= record.index_bytes ? nullptr : "more bytes of ids than of index";
    case TraceRecord::Kind::load:
      return flaw_of_place(head, record);
    case TraceRecord::Kind::prompt:
      return flaw_of_prompt(head, record);
    case TraceRecord::Kind::pause:
    case TraceRecord::Kind::close:
      break;
  }
  return nullptr;
}

bool decode(const TraceHead& head, std::string_view bytes, std::size_t& at, TraceRecord& record) {
  if (at >= bytes.size()) return false;
  const auto kind = static_cast<unsigned char>(bytes[at]);
  if (kind > static_cast<unsigned char>(TraceRecord::Kind::close)) return false;
  record.kind = static_cast<TraceRecord::Kind>(kind);
  Numbers numbers(bytes, at + 1);
  record.sequence = numbers.next();
  switch (record.kind) {
    case TraceRecord::Kind::share:
      record.sharers = numbers.next();
      break;
    case TraceRecord::Kind::prompt:
      decode_prompt(numbers, record);
      break;
    case TraceRecord::Kind::selection:
      decode_selection(head, numbers, record);
      break;
    case TraceRecord::Kind::step_end:
      record.offload_bytes = numbers.next();
      record.index_bytes = numbers.next();
      record.ids_bytes = numbers.next();
      break;
    case TraceRecord::Kind::load:
      decode_load(numbers, record);
      break;
    case TraceRecord::Kind::pause:
    case TraceRecord::Kind::close:
      break;
  }
  at = numbers.at();
  return numbers.good() && flaw_of(head, record) == nullptr;
}

}  // namespace terrace::tuning
