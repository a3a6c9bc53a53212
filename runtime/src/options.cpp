#include "terrace/runtime/options.hpp"

namespace terrace {
namespace {

// A budget of mass has no size that a window could be a share of.
constexpr std::size_t mass_window_tokens = 256;

}  // namespace

Result<RuntimeOptions> RuntimeOptions::from(const Config& config, const KvShape& shape) {
  RuntimeOptions options;
  options.shape = shape;
  options.shape.dtype = *parse_dtype(config.text("kv.dtype"));
  options.policy = config.text("retrieval.policy");
  options.retrieval.pq = {.subspaces = config.integer("pq.subspaces"),
                          .bits = config.integer("pq.bits")};
  options.retrieval.qpq.shrinkage = config.number("qpq.shrinkage");
  options.retrieval.wave = {
      .tokens_per_cluster = config.integer("wave.tokens_per_cluster"),
      .segment_tokens = config.integer("wave.segment_tokens"),
      .metric = config.is("wave.metric", "l2") ? kernels::Metric::l2 : kernels::Metric::cosine,
      .ranking = config.is("wave.ranking", "token_weight") ? ClusterRanking::token_weight
                                                           : ClusterRanking::cluster_weight,
      .estimated_share = config.number("wave.estimated_share"),
      .spreads = config.is("wave.estimate", "spread"),
      .mass_stop = config.is("wave.mass", "certain") ? MassStop::certain : MassStop::estimated};
  options.retrieval.quest.page_tokens = config.integer("quest.page_tokens");
  options.retrieval.infllm = {.block_tokens = config.integer("infllm.block_tokens"),
                              .representatives = config.integer("infllm.representatives")};
  options.retrieval.clusterkv = {
      .tokens_per_cluster = config.integer("clusterkv.tokens_per_cluster"),
      .lists =
          config.is("clusterkv.lists", "kv_head") ? ListScope::kv_head : ListScope::query_head};
  options.dense_layers = config.integer("retrieval.dense_layers");
  options.budget = config.budget("retrieval.budget");
  options.sink_tokens = config.integer("retrieval.sink_tokens");
  options.window_share = config.number("retrieval.window_share");
  options.head_budget =
      config.is("retrieval.head_budget", "even") ? HeadBudget::even : HeadBudget::by_weight;
  options.when =
      config.is("retrieval.when", "always") ? RetrievalWhen::always : RetrievalWhen::spilled;
  options.placement =
      config.is("placement", "offload") ? Placement::offload : Placement::resident_first;
  options.index_residency = config.is("index.residency", "device") ? IndexResidency::device
                            : config.is("index.residency", "host") ? IndexResidency::host
                                                                   : IndexResidency::automatic;
  options.refresh = {.tokens = config.integer("index.refresh_tokens"),
                     .slice = config.duration("index.refresh_slice")};
  options.early_fetch = config.is("retrieval.early_fetch", "off")     ? EarlyFetch::off
                        : config.is("retrieval.early_fetch", "exact") ? EarlyFetch::exact
                                                                      : EarlyFetch::turned;
  options.early_likeness = config.number("retrieval.early_likeness");
  options.block_tokens = config.integer("kv.block_tokens");
  options.host_threads = config.integer("threads.host");
  options.cache = {.policy = config.text("cache.policy"),
                   .admission = config.text("cache.admission"),
                   .granularity = config.is("cache.granularity", "cluster")
                                      ? CacheGranularity::cluster
                                      : CacheGranularity::block,
                   .tokens = config.integer_or_auto("cache.tokens").value_or(0),
                   .sequence_tokens = config.integer_or_auto("cache.sequence_tokens").value_or(0),
                   .replacement = {.lfu_half_life = config.integer("cache.lfu_half_life"),
                                   .last_steps = config.integer("cache.last_steps")},
                   .refill = {.horizon_steps = config.number("cache.horizon")}};
  if (config.is("cache.tokens", "0")) options.cache.policy = "none";
  options.planning.iterations = config.integers_or_auto("planning.iterations");
  options.planning.limits = {.iterations_min = config.integer("planning.iterations_min"),
                             .iterations_max = config.integer("planning.iterations_max")};
  options.deadline = config.duration("deadline");
  options.seed = config.integer("seed");
  TERRACE_TRY(options.validate());
  return options;
}

Status RuntimeOptions::validate() const {
  TERRACE_TRY(shape.validate());
  if (block_tokens == 0 || block_tokens > 65'536) {
    return fail(Errc::invalid_argument, "kv.block_tokens is {}; use 1 to 65536", block_tokens);
  }
  if (!(window_share >= 0 && window_share <= 1)) {
    return fail(Errc::invalid_argument, "retrieval.window_share is {}; use 0 to 1", window_share);
  }
  if (planning.limits.iterations_min > planning.limits.iterations_max) {
    return fail(Errc::invalid_argument, "planning.iterations_min {} is above iterations_max {}",
                planning.limits.iterations_min, planning.limits.iterations_max);
  }
  if (dense_layers > shape.layers) {
    return fail(Errc::invalid_argument, "retrieval.dense_layers {}: the model has {} layers",
                dense_layers, shape.layers);
  }
  if (host_threads == 0 || deadline <= Duration::zero()) {
    return fail(Errc::invalid_argument, "threads.host and deadline must be above zero");
  }
  return {};
}

policies::BudgetTerms RuntimeOptions::budget_terms(std::size_t prompt_tokens) const noexcept {
  policies::BudgetTerms terms{.budget_tokens = budget.tokens(prompt_tokens),
                              .sink_tokens = sink_tokens,
                              .window_share = window_share};
  if (budget.kind == TokenBudget::Kind::mass) terms.window_tokens_max = mass_window_tokens;
  return terms;
}

}  // namespace terrace
