// `terrace run --turns --trace`: records the prompts of the first policy's conversation.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "run/timed_pass.hpp"
#include "terrace/tuning/prefix_recorder.hpp"

namespace terrace::apps {

class PromptRecording {
 public:
  /// Opens the file; returns nothing for an empty name, or without turns.
  /// Errors: those of model_fingerprint() and of PrefixRecorder::open.
  static Result<std::unique_ptr<PromptRecording>> open(const RunJob& job, const std::string& file);

  [[nodiscard]] const std::string& policy() const noexcept { return policy_; }

  /// Records the context and each turn, with all that was decoded before it.
  /// Errors: those of PrefixRecorder::add.
  [[nodiscard]] Status record(const RunJob& job, const TimedPass& pass);

  /// Ends the file, which has yet to be published. Errors: those of PrefixRecorder::close.
  [[nodiscard]] Result<PendingFile> write() { return recorder_.close(); }

 private:
  PromptRecording(std::string policy, tuning::PrefixRecorder recorder)
      : policy_(std::move(policy)), recorder_(std::move(recorder)) {}

  std::string policy_;
  tuning::PrefixRecorder recorder_;
};

}  // namespace terrace::apps
