// Records what a runtime's sequences select: RuntimeOptions::observer that writes a trace.
//
//   TERRACE_ASSIGN(const auto recorder, TraceRecorder::open("traffic", {.runtime = options}));
//   options.observer = recorder.get();
//   ... a runtime is opened with these options, decodes, and is closed with its sequences ...
//   TERRACE_TRY(recorder->finish({}));                  // now the file is there, whole
//
// A trace is tuned for a machine: `terrace tune` takes its times from finish(), or from --profile.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/runtime/options.hpp"
#include "terrace/runtime/selection_observer.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

/// The description of the recorded runtime that a trace has.
struct RecordingOptions {
  RuntimeOptions runtime = {};  ///< that the runtime is opened with; the observer is not looked at
  /// The config of the recorded run: a config tuned to the trace repeats its settings. If it is
  /// missing, the tuned config repeats only the policy and the budget.
  std::optional<Config> config = {};
  std::size_t context_tokens = 4096;  ///< of a prompt: a budget that is a share is one of these
  std::string source = "runtime";     ///< the program that recorded
  std::filesystem::path model_folder = {};  ///< by which a trace knows its model; empty = unknown
  std::uint64_t weight_bytes = 0;           ///< that a step reads beside rows
};

/// Returns every key that is not at its default and has a say in what is selected and computed: all
/// but the cache's, which a trace is tuned for, and the machine's.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> settings_to_repeat(
    const Config& config);

/// Outlives the runtime that it observes, and that runtime's sequences.
///
/// Threads  the observer's calls from any thread, the rest from one
class TraceRecorder final : public SelectionObserver {
 public:
  explicit TraceRecorder(TraceWriter writer) : writer_(std::move(writer)) {}

  /// Opens a trace of a runtime with these options. A recorder that is not finished leaves no file.
  /// Errors: invalid_argument: a policy that selects nothing; those of making the policy, of its
  /// index's layout and of model_fingerprint(); io_error naming the file.
  [[nodiscard]] static Result<std::unique_ptr<TraceRecorder>> open(
      const std::filesystem::path& path, const RecordingOptions& options);

  /// Ignores what comes from now on: a pass that is not to be recorded.
  void stop() noexcept { recording_.store(false, std::memory_order_relaxed); }

  /// Ends the recording. Errors: invalid_argument: it has ended before; those of
  /// TraceWriter::close.
  [[nodiscard]] Result<PendingFile> close(const std::optional<RecordedRun>& run);

  /// The same, and gives the file its name. Errors: those of TraceWriter::finish.
  [[nodiscard]] Status finish(const std::optional<RecordedRun>& run);

  void on_share(SequenceId sequence, std::size_t sharers) override;
  void on_prompt(const LayerPrompt& prompt) override;
  void on_selection(const LayerSelection& selection) override;
  void on_step_end(const StepTraffic& traffic) override;
  void on_loss(SequenceId sequence) override;
  void on_pause(SequenceId sequence) override;
  void on_load(const LayerLoad& load) override;
  void on_close(SequenceId sequence) override;

 private:
  TraceRecord* begin(TraceRecord::Kind kind, SequenceId sequence);

  std::atomic<bool> recording_{true};
  std::mutex mutex_;
  bool closed_ = false;
  TraceWriter writer_;
  TraceRecord record_;
};

}  // namespace terrace::tuning
