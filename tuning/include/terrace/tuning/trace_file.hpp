// Writing and reading traces, one record at a time, in memory bounded by a chunk.
//
//   TERRACE_ASSIGN(auto writer, TraceWriter::create(path, head));
//   writer.append(record);  ...
//   TERRACE_TRY(writer.finish(run));              // now the file is there, whole
//
//   TERRACE_ASSIGN(auto reader, TraceReader::open(path));
//   for (TraceRecord record;;) {
//     TERRACE_ASSIGN(const bool more, reader.next(record));
//     if (!more) break;
//   }
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "terrace/core/replace_file.hpp"
#include "terrace/core/result.hpp"
#include "terrace/tuning/open_units.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// Counts the totals that the end of a trace has of its records.
class TraceTotals {
 public:
  void add(const TraceHead& head, const TraceRecord& record);

  /// The totals so far, without losses and run.
  [[nodiscard]] const TraceEnd& get() const noexcept { return totals_; }
  [[nodiscard]] bool agree_with(const TraceEnd& end) const noexcept;

 private:
  TraceEnd totals_;
  std::vector<std::uint32_t> blocks_;  ///< scratch of add()
};

/// Writes under a temporary name; a writer that is not finished leaves no file behind.
///
/// Threads  one at a time
class TraceWriter {
 public:
  /// Errors: io_error naming the file.
  [[nodiscard]] static Result<TraceWriter> create(const std::filesystem::path& path,
                                                  const TraceHead& head);
  TraceWriter(TraceWriter&&) noexcept = default;

  /// Appends a record. An error, of the file or because readers would refuse the record, is kept
  /// for finish(); later records are not written.
  void append(const TraceRecord& record);

  /// Counts losses (TraceEnd::losses).
  void add_losses(std::uint64_t count) noexcept { losses_ += count; }

  /// Writes the end. Errors: the first of append(); io_error naming the file.
  [[nodiscard]] Result<PendingFile> close(const std::optional<RecordedRun>& run);

  /// Writes the end and gives the file its name. Errors: as close(); io_error naming the file.
  [[nodiscard]] Status finish(const std::optional<RecordedRun>& run);

  [[nodiscard]] const TraceEnd& totals() const noexcept { return totals_.get(); }

 private:
  TraceWriter(PendingFile pending, const TraceHead& head);
  void write_chunk(std::uint32_t kind, const std::string& payload, std::uint32_t records);

  PendingFile pending_;
  TraceHead head_;
  Status written_;  ///< the first record that no reader would take
  std::uint32_t chunk_ = 0;
  std::string payload_;
  std::uint32_t records_ = 0;
  TraceTotals totals_;
  std::uint64_t losses_ = 0;
  OpenUnits units_;
};

/// Whether the counts at the end of a trace are compared with its records. Counting a trace of
/// tokens takes a sixth of a tuning, so a second reading omits it.
enum class TraceCounts : std::uint8_t { checked, known };

/// Threads  one at a time
class TraceReader {
 public:
  /// Reads the head. Errors: io_error; corrupt: no trace, another version, altered.
  [[nodiscard]] static Result<TraceReader> open(const std::filesystem::path& path,
                                                TraceCounts counts = TraceCounts::checked);

  /// Reads the next record, or returns false after the last one, when end() is valid.
  ///
  /// Errors   io_error; corrupt: altered bytes, a file that was cut, an end that counts others;
  ///          unsupported: too many open units (open_units.hpp)
  [[nodiscard]] Result<bool> next(TraceRecord& record);

  /// Calls act(record) for all records that are left; they are the reader's. Errors: the first one
  /// of next().
  template <typename Act>
  [[nodiscard]] Status for_each(Act act);

  [[nodiscard]] const TraceHead& head() const noexcept { return head_; }
  [[nodiscard]] const TraceEnd& end() const noexcept { return end_; }

  /// Share of the file that has been read.
  [[nodiscard]] double progress() const noexcept;

 private:
  TraceReader(std::filesystem::path path, File file, std::uint64_t bytes);
  Result<std::uint32_t> read_chunk();
  Status finish();
  [[nodiscard]] Error corrupt(std::string_view what) const;

  std::filesystem::path path_;
  File file_;
  std::uint64_t file_bytes_ = 0;
  std::uint64_t read_bytes_ = 0;
  std::uint32_t chunk_ = 0;
  std::string payload_;
  std::size_t at_ = 0;
  std::uint32_t records_left_ = 0;
  bool ended_ = false;
  TraceHead head_;
  TraceCounts counts_ = TraceCounts::checked;
  TraceTotals totals_;
  OpenUnits units_{{}};  ///< of the head, once that is read
  TraceEnd end_;
};

template <typename Act>
Status TraceReader::for_each(Act act) {
  for (TraceRecord record;;) {
    TERRACE_ASSIGN(const bool more, next(record));
    if (!more) return {};
    act(record);
  }
}

/// Reads a whole trace, checking every byte, and returns its end.
[[nodiscard]] Result<TraceEnd> check_trace(const std::filesystem::path& path);

/// Checks that a trace was recorded from a model. Errors: invalid_argument naming both.
[[nodiscard]] Status check_model(const TraceHead& head, const std::filesystem::path& model_folder);

/// Returns what names a model in traces and gates: a hash of its config.json and, of each file
/// model*.safetensors beside it, of the header and of 64 bytes at 256 places. Errors: io_error.
[[nodiscard]] Result<std::string> model_fingerprint(const std::filesystem::path& model_folder);

/// Returns a hash of config.json and of all bytes of the files model*.safetensors, which names a
/// model where rows of it are kept: a change of any weight gives another one. Errors: as
/// model_fingerprint(). Cost: reads all weights.
[[nodiscard]] Result<std::string> model_digest(const std::filesystem::path& model_folder);

}  // namespace terrace::tuning
