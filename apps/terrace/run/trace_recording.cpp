#include "run/trace_recording.hpp"

#include <algorithm>

#include "machine.hpp"

namespace terrace::apps {
namespace {

/// The policy of the job that selects; there must be one.
Result<JobPolicy> find_policy(const RunJob& job) {
  std::optional<JobPolicy> found;
  for (const std::string& policy : job.policies) {
    TERRACE_ASSIGN(JobPolicy its, policy_of_job(job, policy));
    if (!its.traits.selects) continue;
    if (found) {
      return fail(Errc::invalid_argument,
                  "--trace records one policy, and {} and {} both select; name one with --policy",
                  found->options.policy, policy);
    }
    found = std::move(its);
  }
  if (found) return *found;
  return fail(Errc::invalid_argument,
              "--trace: no policy of this run selects anything; name one with --policy");
}

tuning::TraceHead make_head(const RunJob& job, const JobPolicy& recorded) {
  const RuntimeOptions& options = recorded.options;
  const bool clusters = recorded.layout.chunk_clusters > 0;
  return {.unit = tuning::TraceUnit::token,
          .source = "run",
          .model = std::filesystem::path(job.model_folder).filename().string(),
          .weight_bytes = 2 * job.model.parameters(),
          .policy = options.policy,
          .budget = job.config.text("retrieval.budget"),
          .shape = options.shape,
          .placement = options.placement,
          .block_tokens = options.block_tokens,
          .slot_rows = clusters ? cluster_slot_rows(options.shape, options.block_tokens) : 0,
          .staged_rows = list_count(options.shape, recorded.traits.lists) * recorded.split.selected,
          .sink_tokens = recorded.split.sinks,
          .window_tokens = recorded.split.window,
          .selected_tokens = recorded.split.selected,
          .context_tokens = job.context,
          .cache = options.cache,
          .settings = settings_to_repeat(job.config),
          .seed = options.seed};
}

/// Per token. The most of it that no compute can have hidden is what a step took beside compute.
double upkeep_seconds(const TimedPass& pass) {
  const auto steps = static_cast<double>(std::max<std::uint64_t>(1, pass.counters.steps));
  return std::min(seconds(pass.counters.upkeep) / steps, pass.seconds.update);
}

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_to_repeat(const Config& config) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const ConfigKey& key : config_keys()) {
    if (!tuning::is_recorded_key(key.name) || !is_set(config, key.name)) continue;
    settings.emplace_back(key.name, config.text(key.name));
  }
  return settings;
}

Result<std::unique_ptr<TraceRecording>> TraceRecording::open(const RunJob& job,
                                                             const std::string& file) {
  if (file.empty()) return nullptr;
  TERRACE_ASSIGN(const JobPolicy recorded, find_policy(job));
  tuning::TraceHead head = make_head(job, recorded);
  TERRACE_ASSIGN(head.model_fingerprint, tuning::model_fingerprint(job.model_folder));
  TERRACE_ASSIGN(tuning::TraceWriter writer, tuning::TraceWriter::create(file, head));
  return std::unique_ptr<TraceRecording>(
      new TraceRecording(recorded.options.policy, std::move(writer)));
}

void TraceRecording::end(const TimedPass& pass) {
  recorder_.stop();
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
