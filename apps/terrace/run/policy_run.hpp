// The run of a job's policy: timed, then measured.
#pragma once

#include "run/figures.hpp"
#include "run/prompt_recording.hpp"
#include "run/timeline.hpp"
#include "run/trace_recording.hpp"

namespace terrace::apps {

/// The part that the runs of a job's policies share.
struct PolicyRun {
  const RunJob& job;
  const ReferencePass& reference;
  engine::AttentionProbe& probe;  ///< knows the prompt's keys
  Progress& progress;
  Timeline* timeline = nullptr;        ///< null = nothing is recorded
  TraceRecording* trace = nullptr;     ///< records the policy it was opened for
  PromptRecording* prompts = nullptr;  ///< the same, of prompts
  bool times_bare_prefill = true;      ///< a second prefill, without clustering
};

Result<PolicyFigures> run_policy(const PolicyRun& run, const std::string& policy);

}  // namespace terrace::apps
