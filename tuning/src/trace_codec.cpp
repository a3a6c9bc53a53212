#include "trace_codec.hpp"

#include <limits>
#include <span>

namespace terrace::tuning {
namespace {

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

void put_list(std::string& bytes, std::span<const std::uint32_t> ids) {
  put(bytes, ids.size());
  // Lists of dropped units are short and in the order of events.
  for (const std::uint32_t id : ids) put(bytes, id);
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

  /// The id behind `last`, of ids that ascend; the first of them has none before it.
  std::uint32_t next_above(std::uint32_t last, bool first) {
    const std::uint64_t step = next_small();
    const std::uint64_t id = last + step;
    if ((step == 0 && !first) || id > std::numeric_limits<std::uint32_t>::max()) good_ = false;
    return static_cast<std::uint32_t>(id);
  }

  void next_ascending(std::span<std::uint32_t> ids) {
    std::uint32_t last = 0;
    for (std::uint32_t& id : ids) id = last = next_above(last, &id == ids.data());
  }

  void next_list(std::vector<UnitKey>& ids) {
    ids.resize(next_count());
    for (UnitKey& id : ids) id = next_small();
  }

  [[nodiscard]] bool good() const noexcept { return good_; }
  [[nodiscard]] std::size_t at() const noexcept { return at_; }

 private:
  std::string_view bytes_;
  std::size_t at_;
  bool good_ = true;
};

void encode_selection(TraceUnit unit, const TraceRecord& record, std::string& bytes) {
  put(bytes, record.layer);
  put(bytes, record.position);
  put(bytes, record.sinks_end);
  put(bytes, record.position - record.window_begin);
  put(bytes, record.resident_head);
  put(bytes, record.resident_tail);
  put_list(bytes, record.dropped);
  put_list(bytes, record.unplaced);
  if (unit == TraceUnit::token) {
    const std::uint32_t* ids = record.positions.data();
    for (const std::uint32_t count : record.head_counts) {
      put(bytes, count);
      put_ascending(bytes, {ids, count});
      ids += count;
    }
    return;
  }
  if (unit == TraceUnit::cluster) {
    put(bytes, record.renamed ? 1 : 0);
    put(bytes, record.rows_resident);
  }
  put(bytes, record.units.size());
  UnitKey last = 0;
  for (const SelectedUnit& each : record.units) {
    put(bytes, each.unit - last);
    put(bytes, each.rows);
    if (unit == TraceUnit::cluster) put(bytes, each.size_rows);
    last = each.unit;
  }
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

void decode_units(const TraceHead& head, Numbers& numbers, TraceRecord& record) {
  if (head.unit == TraceUnit::cluster) {
    record.renamed = numbers.next() != 0;
    record.rows_resident = numbers.next();
  }
  record.units.resize(numbers.next_count());
  UnitKey last = 0;
  for (SelectedUnit& each : record.units) {
    each.unit = last = numbers.next_above(last, &each == record.units.data());
    each.rows = numbers.next_small();
    each.size_rows = head.unit == TraceUnit::cluster ? numbers.next_small() : 0;
  }
}

/// Units are keys of arrays: a trace must not name ones that nobody could have.
bool plausible(const TraceHead& head, const TraceRecord& record) {
  constexpr std::uint64_t ids_max = std::uint64_t{1} << 28;
  // Of clusters positions are keys of nothing.
  const std::uint64_t positions_max =
      head.unit == TraceUnit::cluster ? std::uint64_t{1} << 48 : ids_max;
  if (record.layer >= head.shape.layers || record.position >= positions_max) return false;
  if (record.window_begin > record.position) return false;
  for (const std::uint32_t position : record.positions) {
    if (position > record.position) return false;
  }
  for (const auto* const lost : {&record.dropped, &record.unplaced}) {
    for (const UnitKey unit : *lost) {
      if (unit >= ids_max) return false;
    }
  }
  for (const SelectedUnit& each : record.units) {
    if (each.unit >= ids_max) return false;
    if (head.unit == TraceUnit::cluster && each.size_rows == 0) return false;
  }
  return true;
}

bool decode_selection(const TraceHead& head, Numbers& numbers, TraceRecord& record) {
  record.layer = numbers.next();
  record.position = numbers.next();
  record.sinks_end = numbers.next();
  record.window_begin = record.position - numbers.next();
  record.resident_head = numbers.next();
  record.resident_tail = numbers.next();
  numbers.next_list(record.dropped);
  numbers.next_list(record.unplaced);
  record.positions.clear();
  record.units.clear();
  if (head.unit == TraceUnit::token) {
    decode_tokens(head, numbers, record);
  } else {
    decode_units(head, numbers, record);
  }
  return plausible(head, record);
}

}  // namespace

void encode(TraceUnit unit, const TraceRecord& record, std::string& bytes) {
  bytes.push_back(static_cast<char>(record.kind));
  put(bytes, record.sequence);
  switch (record.kind) {
    case TraceRecord::Kind::share:
      put(bytes, record.sharers);
      break;
    case TraceRecord::Kind::prompt:
      put(bytes, record.prompt.begin);
      put(bytes, record.prompt.end);
      break;
    case TraceRecord::Kind::selection:
      encode_selection(unit, record, bytes);
      break;
    case TraceRecord::Kind::step_end:
      put(bytes, record.offload_bytes);
      put(bytes, record.index_bytes);
      put(bytes, record.ids_bytes);
  }
}

bool decode(const TraceHead& head, std::string_view bytes, std::size_t& at, TraceRecord& record) {
  if (at >= bytes.size()) return false;
  const auto kind = static_cast<unsigned char>(bytes[at]);
  if (kind > static_cast<unsigned char>(TraceRecord::Kind::step_end)) return false;
  record.kind = static_cast<TraceRecord::Kind>(kind);
  Numbers numbers(bytes, at + 1);
  record.sequence = numbers.next();
  bool right = record.sequence < (std::uint64_t{1} << 24);
  switch (record.kind) {
    case TraceRecord::Kind::share:
      record.sharers = numbers.next();
      right = right && record.sharers > 0;
      break;
    case TraceRecord::Kind::prompt:
      record.prompt.begin = numbers.next();
      record.prompt.end = numbers.next();
      break;
    case TraceRecord::Kind::selection:
      right = decode_selection(head, numbers, record) && right;
      break;
    case TraceRecord::Kind::step_end:
      record.offload_bytes = numbers.next();
      record.index_bytes = numbers.next();
      record.ids_bytes = numbers.next();
      right = right && record.ids_bytes <= record.index_bytes;
  }
  at = numbers.at();
  return right && numbers.good();
}

}  // namespace terrace::tuning
