#include <fmt/core.h>

#include "terrace/tuning/recorder.hpp"

namespace terrace::tuning {
namespace {

/// Returns the budget as parse_token_budget() reads it.
std::string text_of(const TokenBudget& budget) {
  if (budget.kind == TokenBudget::Kind::tokens) return fmt::format("{:.0f}", budget.value);
  const bool is_mass = budget.kind == TokenBudget::Kind::mass;
  // The point is what makes a share of it.
  const char* const point = budget.value == 1 ? ".0" : "";
  return fmt::format("{}{}{}", is_mass ? "mass:" : "", budget.value, point);
}

Result<TraceHead> make_head(const RecordingOptions& recording) {
  const RuntimeOptions& options = recording.runtime;
  TERRACE_TRY(options.validate());
  std::shared_ptr<const RetrievalPolicy> policy = options.own_policy;
  if (policy == nullptr) {
    TERRACE_ASSIGN(policy, policies::make_retrieval_policy(options.policy, options.retrieval));
  }
  const RetrievalTraits& traits = policy->traits();
  if (!traits.selects) {
    return fail(Errc::invalid_argument, "policy {} selects nothing that a trace could hold",
                traits.name);
  }
  TERRACE_ASSIGN(const IndexLayout layout, policy->index_layout(options.shape));
  const auto split = policies::split_budget(options.budget_terms(recording.context_tokens), traits);
  const bool clusters = layout.chunk_clusters > 0;
  const std::optional<Config>& config = recording.config;
  return TraceHead{
      .unit = TraceUnit::token,
      .source = recording.source,
      .model = recording.model_folder.filename().string(),
      .weight_bytes = recording.weight_bytes,
      .policy = std::string(traits.name),
      .budget = config ? config->text("retrieval.budget") : text_of(options.budget),
      .shape = options.shape,
      .placement = options.placement,
      .block_tokens = options.block_tokens,
      .slot_rows = clusters ? cluster_slot_rows(options.shape, options.block_tokens) : 0,
      .staged_rows = list_count(options.shape, traits.lists) * split.selected,
      .sink_tokens = split.sinks,
      .window_tokens = split.window,
      .selected_tokens = split.selected,
      .context_tokens = recording.context_tokens,
      .cache = options.cache,
      .settings =
          config ? settings_to_repeat(*config) : std::vector<std::pair<std::string, std::string>>{},
      .seed = options.seed};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> settings_to_repeat(const Config& config) {
  std::vector<std::pair<std::string, std::string>> settings;
  for (const ConfigKey& key : config_keys()) {
    const bool is_set = config.source(key.name).origin != ConfigOrigin::default_value;
    if (is_set && is_recorded_key(key.name)) settings.emplace_back(key.name, config.text(key.name));
  }
  return settings;
}

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::open(const std::filesystem::path& path,
                                                           const RecordingOptions& options) {
  TERRACE_ASSIGN(TraceHead head, make_head(options));
  if (!options.model_folder.empty()) {
    TERRACE_ASSIGN(head.model_fingerprint, model_fingerprint(options.model_folder));
  }
  TERRACE_ASSIGN(TraceWriter writer, TraceWriter::create(path, head));
  return std::make_unique<TraceRecorder>(std::move(writer));
}

}  // namespace terrace::tuning
