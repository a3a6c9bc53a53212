#include "run/trace_recording.hpp"

#include <algorithm>

#include "machine.hpp"

namespace terrace::apps {
namespace {

/// Options of the job's policy that selects; there must be one.
Result<RuntimeOptions> find_policy(const RunJob& job) {
  std::optional<RuntimeOptions> found;
  for (const std::string& policy : job.policies) {
    TERRACE_ASSIGN(JobPolicy its, policy_of_job(job, policy));
    if (!its.traits.selects) continue;
    if (found) {
      return fail(Errc::invalid_argument,
                  "--trace records one policy, and {} and {} both select; name one with --policy",
                  found->policy, policy);
    }
    found = std::move(its.options);
  }
  if (found) return *found;
  return fail(Errc::invalid_argument,
              "--trace: no policy of this run selects anything; name one with --policy");
}

/// Per token. The most of it that no compute can have hidden is what a step took beside compute.
double upkeep_seconds(const TimedPass& pass) {
  const auto steps = static_cast<double>(std::max<std::uint64_t>(1, pass.counters.steps));
  return std::min(seconds(pass.counters.upkeep) / steps, pass.seconds.update);
}

}  // namespace

Result<std::unique_ptr<TraceRecording>> TraceRecording::open(const RunJob& job,
                                                             const std::string& file) {
  if (file.empty() || !job.turns.empty()) return nullptr;
  TERRACE_ASSIGN(const RuntimeOptions recorded, find_policy(job));
  TERRACE_ASSIGN(auto recorder,
                 tuning::TraceRecorder::open(file, {.runtime = recorded,
                                                    .config = job.config,
                                                    .context_tokens = job.context,
                                                    .source = "run",
                                                    .model_folder = job.model_folder,
                                                    .weight_bytes = 2 * job.model.parameters()}));
  return std::unique_ptr<TraceRecording>(new TraceRecording(recorded.policy, std::move(recorder)));
}

void TraceRecording::end(const TimedPass& pass) {
  recorder_->stop();
  run_ = tuning::RecordedRun{.cache = pass.counters.cache,
                             .bytes = pass.counters.bytes,
                             .decode_seconds = pass.seconds.decode_per_token,
                             .link_seconds = pass.seconds.fetch + pass.seconds.wait,
                             .select_seconds = pass.seconds.select,
                             .upkeep_seconds = upkeep_seconds(pass),
                             .fixed_device_bytes = pass.device_peak_bytes - pass.block_pool_bytes,
                             .machine = read_machine().cpu};
}

}  // namespace terrace::apps
