#include "terrace/tuning/trace_file.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <tuple>

#include "terrace/core/input_file.hpp"
#include "terrace/core/replace_file.hpp"
#include "trace_codec.hpp"

namespace terrace::tuning {
namespace {

// The last letter is the version of the format. The letter differs by more than one bit from the
// version before, which is read, too: a flipped bit cannot turn one into the other.
constexpr std::string_view magic = "TRRCTRC8";
constexpr char version_before = '6';  ///< has a record for each layer, alike or not
constexpr std::size_t chunk_bytes = std::size_t{1} << 18;
constexpr std::size_t chunk_bytes_max = std::size_t{1} << 26;  ///< a larger one is damage

constexpr std::uint32_t head_chunk = 0x44414548;  // "HEAD"
constexpr std::uint32_t record_chunk = 0x53434552;
constexpr std::uint32_t end_chunk = 0x454e4f44;

struct ChunkHeader {
  std::uint32_t kind = 0;
  std::uint32_t payload_bytes = 0;
  std::uint32_t number = 0;
  std::uint32_t records = 0;
  std::uint64_t checksum = 0;
};
static_assert(sizeof(ChunkHeader) == 24);
constexpr std::size_t checked_header_bytes = offsetof(ChunkHeader, checksum);

std::uint64_t checksum(const ChunkHeader& header, const std::string& payload) {
  const std::uint64_t seed = XXH64(&header, checked_header_bytes, 0);
  return XXH64(payload.data(), payload.size(), seed);
}

Status check_units(const std::string& path, const OpenUnits& units) {
  if (!units.are_too_many()) return {};
  if (units.count() <= open_units_max) {
    return fail(Errc::unsupported,
                "{}: the sequences that are open at a time have {} clusters, or blocks of {} "
                "tokens, in all their layers, and almost no record wants them: no run has such",
                path, units.count(), smallest_block_tokens);
  }
  return fail(Errc::unsupported,
              "{}: the sequences that are open at a time have more than {} clusters, or blocks of "
              "{} tokens, in all their layers, and no replay could hold them; record fewer or "
              "shorter ones",
              path, open_units_max, smallest_block_tokens);
}

}  // namespace

void TraceTotals::add(const TraceHead& head, const TraceRecord& record) {
  totals_.sequences = std::max<std::size_t>(totals_.sequences, record.sequence + 1);
  if (record.kind == TraceRecord::Kind::step_end) ++totals_.steps;
  if (record.kind != TraceRecord::Kind::selection) return;
  ++totals_.layer_steps;
  totals_.last_position = std::max(totals_.last_position, record.position);
  if (head.unit == TraceUnit::token) {
    totals_.rows += record.positions.size();
  } else {
    for (const SelectedUnit& each : record.units) totals_.rows += each.rows;
  }
  if (head.unit != TraceUnit::token || head.cache.granularity == CacheGranularity::cluster) {
    totals_.selections += record.units.size();
    return;
  }
  blocks_.clear();
  for (const std::uint32_t position : record.positions) {
    const auto block = static_cast<std::uint32_t>(position / head.block_tokens);
    if (blocks_.empty() || blocks_.back() != block) blocks_.push_back(block);
  }
  std::ranges::sort(blocks_);
  totals_.selections +=
      static_cast<std::uint64_t>(std::ranges::unique(blocks_).begin() - blocks_.begin());
}

bool TraceTotals::agree_with(const TraceEnd& end) const noexcept {
  const auto counts = [](const TraceEnd& of) {
    return std::tuple(of.layer_steps, of.steps, of.selections, of.rows, of.last_position,
                      of.sequences);
  };
  return counts(totals_) == counts(end);
}

Result<TraceWriter> TraceWriter::create(const std::filesystem::path& path, const TraceHead& head) {
  TERRACE_ASSIGN(PendingFile pending, PendingFile::create(path.string()));
  return TraceWriter(std::move(pending), head);
}

TraceWriter::TraceWriter(PendingFile pending, const TraceHead& head)
    : pending_(std::move(pending)), head_(head), units_(head) {
  pending_.append(magic);
  write_chunk(head_chunk, encode_head(head), 0);
}

void TraceWriter::write_chunk(std::uint32_t kind, const std::string& payload,
                              std::uint32_t records) {
  ChunkHeader header{.kind = kind,
                     .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                     .number = chunk_++,
                     .records = records};
  header.checksum = checksum(header, payload);
  pending_.append({reinterpret_cast<const char*>(&header), sizeof header});
  pending_.append(payload);
}

void TraceWriter::append(const TraceRecord& record) {
  if (!written_) return;
  if (const char* const flaw = flaw_of(head_, record)) {
    written_ =
        fail(Errc::invalid_argument, "{}: cannot be recorded: sequence {} has a record with {}",
             pending_.path(), record.sequence, flaw);
    return;
  }
  units_.add(record);
  written_ = check_units(pending_.path(), units_);
  if (!written_) return;
  totals_.add(head_, record);
  encode(head_, record, payload_);
  ++records_;
  if (payload_.size() < chunk_bytes) return;
  write_chunk(record_chunk, payload_, records_);
  payload_.clear();
  records_ = 0;
}

Result<PendingFile> TraceWriter::close(const std::optional<RecordedRun>& run) {
  if (records_ > 0) write_chunk(record_chunk, payload_, records_);
  TraceEnd end = totals();
  end.losses = losses_;
  end.run = run;
  write_chunk(end_chunk, encode_end(end), 0);
  TERRACE_TRY(written_);
  TERRACE_TRY(pending_.close());
  return std::move(pending_);
}

Status TraceWriter::finish(const std::optional<RecordedRun>& run) {
  TERRACE_ASSIGN(PendingFile whole, close(run));
  return whole.publish();
}

Result<TraceReader> TraceReader::open(const std::filesystem::path& path, TraceCounts counts) {
  if (path == standard_input) {
    return fail(Errc::invalid_argument,
                "-: a trace is read from a file, not from standard input: name the file");
  }
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  if (error == std::errc::operation_not_supported) {
    return fail(Errc::io_error, "{}: a trace is read from a file, and this is a pipe or a device",
                path.string());
  }
  // Opened once it is known to be a file: a pipe would have to be waited for.
  File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr || error) {
    return fail(Errc::io_error, "{}: {}", path.string(),
                error ? error.message() : std::strerror(errno));
  }
  TraceReader reader(path, std::move(file), bytes);
  std::array<char, magic.size()> found{};
  const bool whole = std::fread(found.data(), found.size(), 1, reader.file_.get()) == 1;
  const std::string_view start(found.data(), found.size());
  if (!whole || start.substr(0, magic.size() - 1) != magic.substr(0, magic.size() - 1)) {
    return tl::unexpected(reader.corrupt(
        "this is no trace (Mooncake's JSONL: terrace trace convert --from mooncake)"));
  }
  if (start.back() != magic.back() && start.back() != version_before) {
    const auto version = static_cast<unsigned char>(start.back());  // may be any byte
    return fail(
        Errc::corrupt,
        "{}: written by another version of terrace, in format {}, and this one reads {} and {}; "
        "record it anew with terrace run --trace",
        path.string(),
        std::isgraph(version) != 0 ? std::string(1, start.back()) : fmt::format("{:#04x}", version),
        version_before, magic.back());
  }
  reader.read_bytes_ = magic.size();
  TERRACE_ASSIGN(const std::uint32_t kind, reader.read_chunk());
  if (kind != head_chunk) return tl::unexpected(reader.corrupt("it does not begin with a head"));
  TERRACE_ASSIGN(reader.head_, decode_head(reader.payload_));
  reader.counts_ = counts;
  reader.units_ = OpenUnits(reader.head_);
  reader.payload_.clear();
  reader.records_left_ = 0;
  return reader;
}

TraceReader::TraceReader(std::filesystem::path path, File file, std::uint64_t bytes)
    : path_(std::move(path)), file_(std::move(file)), file_bytes_(bytes) {}

Error TraceReader::corrupt(std::string_view what) const {
  return make_error(Errc::corrupt, "{}: {}", path_.string(), what);
}

double TraceReader::progress() const noexcept {
  return static_cast<double>(read_bytes_) /
         static_cast<double>(std::max<std::uint64_t>(1, file_bytes_));
}

Result<std::uint32_t> TraceReader::read_chunk() {
  ChunkHeader header;
  if (std::fread(&header, sizeof header, 1, file_.get()) != 1) {
    return tl::unexpected(corrupt("the trace was cut: its end is missing"));
  }
  if (header.payload_bytes > chunk_bytes_max || header.payload_bytes > file_bytes_ - read_bytes_) {
    return tl::unexpected(corrupt("altered or cut: a chunk is larger than the file"));
  }
  // A chunk ends with the record that fills it: with room for that no later chunk needs more.
  payload_.reserve(chunk_bytes + chunk_bytes / 4);
  payload_.resize(header.payload_bytes);
  if (std::fread(payload_.data(), 1, payload_.size(), file_.get()) != payload_.size()) {
    return tl::unexpected(corrupt("the trace was cut: its end is missing"));
  }
  if (header.checksum != checksum(header, payload_) || header.number != chunk_) {
    return fail(Errc::corrupt, "{}: altered: the checksum of chunk {} does not fit; record it anew",
                path_.string(), chunk_);
  }
  ++chunk_;
  read_bytes_ += sizeof header + payload_.size();
  at_ = 0;
  records_left_ = header.records;
  return header.kind;
}

Status TraceReader::finish() {
  TERRACE_ASSIGN(end_, decode_end(payload_));
  if (read_bytes_ != file_bytes_) return tl::unexpected(corrupt("altered: bytes after its end"));
  if (counts_ == TraceCounts::checked && !totals_.agree_with(end_)) {
    return tl::unexpected(corrupt("its end counts other records than there are"));
  }
  ended_ = true;
  return {};
}

Result<bool> TraceReader::next(TraceRecord& record) {
  if (ended_) return false;
  while (records_left_ == 0) {
    if (at_ != payload_.size()) return tl::unexpected(corrupt("a chunk has bytes after its end"));
    TERRACE_ASSIGN(const std::uint32_t kind, read_chunk());
    if (kind == end_chunk) {
      TERRACE_TRY(finish());
      return false;
    }
    if (kind != record_chunk) return tl::unexpected(corrupt("a chunk of unknown kind"));
  }
  if (!decode(head_, payload_, at_, record)) {
    return fail(Errc::corrupt, "{}: a record of chunk {} is not right; record it anew",
                path_.string(), chunk_ - 1);
  }
  units_.add(record);
  TERRACE_TRY(check_units(path_.string(), units_));
  if (counts_ == TraceCounts::checked) totals_.add(head_, record);
  --records_left_;
  return true;
}

Result<TraceEnd> check_trace(const std::filesystem::path& path) {
  TERRACE_ASSIGN(TraceReader reader, TraceReader::open(path));
  TERRACE_TRY(reader.for_each([](const TraceRecord&) {}));
  return reader.end();
}

}  // namespace terrace::tuning
