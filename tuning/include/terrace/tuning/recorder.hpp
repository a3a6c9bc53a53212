// Records what a runtime's sequences select: RuntimeOptions::observer that writes a trace.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "terrace/runtime/selection_observer.hpp"
#include "terrace/tuning/trace_file.hpp"

namespace terrace::tuning {

/// Threads  the observer's calls from any thread, the rest from one
class TraceRecorder final : public SelectionObserver {
 public:
  explicit TraceRecorder(TraceWriter writer) : writer_(std::move(writer)) {}

  /// Ignores what comes from now on: a pass that is not to be recorded.
  void stop() noexcept { recording_.store(false, std::memory_order_relaxed); }

  /// Ends the recording. Errors: those of TraceWriter::close.
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
  TraceWriter writer_;
  TraceRecord record_;
};

}  // namespace terrace::tuning
