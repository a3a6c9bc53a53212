// Records the prompts that an engine is given, as a trace of prefixes for `terrace tune --memory`.
// A trace has numbers of chunks, no tokens and no text.
//
//   TERRACE_ASSIGN(auto recorder, PrefixRecorder::open("prefixes", {.chunk_tokens = 256}));
//   ... for each request, when it comes:
//   TERRACE_TRY(recorder.add(prompt, milliseconds));
//   TERRACE_TRY(recorder.finish());                     // now the file is there, whole
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "terrace/core/ids.hpp"
#include "terrace/tuning/import.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

struct PrefixRecorderOptions {
  std::size_t chunk_tokens = 256;  ///< as tier.chunk_tokens
  /// The model that the prompts are for. Without one, tune asks for a shape.
  std::optional<ImportedModel> model = {};
  std::string source = "runtime";  ///< the program that records
};

/// Memory   some 100 bytes for each chunk that no earlier prompt had
/// Threads  one at a time
class PrefixRecorder {
 public:
  /// Opens a trace. A recorder that is not finished leaves no file.
  ///
  /// Errors   invalid_argument: chunks of no tokens; io_error naming the file
  [[nodiscard]] static Result<PrefixRecorder> open(const std::filesystem::path& path,
                                                   const PrefixRecorderOptions& options);
  PrefixRecorder(PrefixRecorder&&) noexcept;
  PrefixRecorder& operator=(PrefixRecorder&&) noexcept;
  ~PrefixRecorder();

  /// Notes a request, in the order in which they come: all tokens of its prompt, with those of a
  /// conversation before it. `arrival_ms`: of any clock; nothing: it came when the request before
  /// it had its answer.
  ///
  /// Errors   invalid_argument: no tokens; unsupported: more than 2^24 chunks; out_of_memory: the
  ///          hash could not be computed. Nothing is noted then
  [[nodiscard]] Status add(std::span<const TokenId> prompt,
                           std::optional<std::uint64_t> arrival_ms = {});

  /// Ends the recording. Errors: those of TraceWriter::close.
  [[nodiscard]] Result<PendingFile> close();

  /// The same, and gives the file its name. Errors: those of TraceWriter::finish.
  [[nodiscard]] Status finish();

 private:
  class State;
  explicit PrefixRecorder(std::unique_ptr<State> state) noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace terrace::tuning
