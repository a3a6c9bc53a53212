// `terrace run --trace`: records the timed pass of the one policy that selects.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "run/timed_pass.hpp"
#include "terrace/tuning/recorder.hpp"

namespace terrace::apps {

class TraceRecording {
 public:
  /// Opens the file; returns nothing for an empty name, or with turns (PromptRecording).
  /// Errors: invalid_argument: not exactly one of the job's policies selects; io_error.
  static Result<std::unique_ptr<TraceRecording>> open(const RunJob& job, const std::string& file);

  [[nodiscard]] const std::string& policy() const noexcept { return policy_; }
  [[nodiscard]] tuning::TraceRecorder& recorder() noexcept { return *recorder_; }

  /// Ends the recording with what the pass counted and took.
  void end(const TimedPass& pass);

  /// Ends the file, which has yet to be published. Errors: those of TraceRecorder::close.
  [[nodiscard]] Result<PendingFile> write() { return recorder_->close(run_); }

 private:
  TraceRecording(std::string policy, std::unique_ptr<tuning::TraceRecorder> recorder)
      : policy_(std::move(policy)), recorder_(std::move(recorder)) {}

  std::string policy_;
  std::unique_ptr<tuning::TraceRecorder> recorder_;
  std::optional<tuning::RecordedRun> run_;
};

}  // namespace terrace::apps
