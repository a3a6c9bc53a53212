#include "terrace/runtime/options.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "memory/daemon_tier.hpp"
#include "memory/remote_tier.hpp"

namespace terrace {
namespace {

// A budget of mass has no size that a window could be a share of.
constexpr std::size_t mass_window_tokens = 256;

// Far above any model, and low enough that sizes of a layer fit in 64 bits.
constexpr std::size_t shape_max = 16'384;
constexpr std::size_t sinks_max = std::size_t{1} << 20;

/// Returns what the word that stands at `key` means: one of `words`, as the schema has checked.
template <typename Meaning>
Meaning meaning_of(const Config& config, std::string_view key,
                   std::initializer_list<std::pair<std::string_view, Meaning>> words) {
  for (const auto& [word, meaning] : words) {
    if (config.is(key, word)) return meaning;
  }
  return words.begin()->second;
}

policies::RetrievalOptions retrieval_options(const Config& config) {
  policies::RetrievalOptions options;
  options.refine = {
      .bits = meaning_of<std::size_t>(config, "retrieval.refine", {{"off", 0}, {"1", 1}, {"2", 2}}),
      .factor = config.integer("retrieval.refine_factor")};
  options.estimates = {.group_tokens = config.integer("retrieval.estimate_tokens"),
                       .in_budget = config.is("retrieval.estimates_in_budget", "on")};
  options.pq = {.subspaces = config.integer("pq.subspaces"), .bits = config.integer("pq.bits")};
  options.qpq.shrinkage = config.number("qpq.shrinkage");
  options.wave = {
      .tokens_per_cluster = config.integer("wave.tokens_per_cluster"),
      .segment_tokens = config.integer("wave.segment_tokens"),
      .metric = meaning_of<kernels::Metric>(
          config, "wave.metric",
          {{"l2", kernels::Metric::l2}, {"cosine", kernels::Metric::cosine}}),
      .ranking = meaning_of<ClusterRanking>(config, "wave.ranking",
                                            {{"token_weight", ClusterRanking::token_weight},
                                             {"cluster_weight", ClusterRanking::cluster_weight}}),
      .estimated_share = config.number("wave.estimated_share"),
      .spreads = config.is("wave.estimate", "spread")};
  using SignEstimates = policies::SignsOptions::Estimates;
  options.signs = {
      .group_tokens = config.integer("signs.group_tokens"),
      .estimates = meaning_of<SignEstimates>(config, "signs.estimates",
                                             {{"off", SignEstimates::off},
                                              {"on", SignEstimates::on},
                                              {"in_budget", SignEstimates::in_budget}})};
  options.quest.page_tokens = config.integer("quest.page_tokens");
  options.infllm = {.block_tokens = config.integer("infllm.block_tokens"),
                    .representatives = config.integer("infllm.representatives")};
  options.sparq.channels = config.integer_or_auto("sparq.channels").value_or(0);
  options.infinigen.ratio = config.number("infinigen.ratio");
  options.clusterkv = {.tokens_per_cluster = config.integer("clusterkv.tokens_per_cluster"),
                       .lists = meaning_of<ListScope>(config, "clusterkv.lists",
                                                      {{"kv_head", ListScope::kv_head},
                                                       {"query_head", ListScope::query_head}})};
  return options;
}

policies::RetentionOptions retention_options(const Config& config) {
  using policies::Anchor;
  using policies::CrushRule;
  using policies::GateLists;
  using policies::PoolKind;
  using policies::Rerun;
  return {.base = config.text("retention.base"),
          .pool = {.width = config.integer_or_auto("retention.pool").value_or(0),
                   .kind = meaning_of<PoolKind>(
                       config, "retention.pool_kind",
                       {{"max", PoolKind::max}, {"average", PoolKind::average}})},
          .score_window = config.integer("retention.score_window"),
          .rerun = meaning_of<Rerun>(config, "retention.rerun",
                                     {{"once", Rerun::once}, {"flush", Rerun::flush}}),
          .normalise = config.is("retention.normalise", "on"),
          .ageing = config.is("retention.ageing", "on"),
          .gate_lists = meaning_of<GateLists>(config, "retention.gate_lists",
                                              {{"own", GateLists::own}, {"sum", GateLists::sum}}),
          .crush = {.representatives = config.number("retention.representatives"),
                    .anchor = meaning_of<Anchor>(config, "retention.anchor",
                                                 {{"random", Anchor::random},
                                                  {"mean", Anchor::mean},
                                                  {"alternate", Anchor::alternate}}),
                    .rule = meaning_of<CrushRule>(
                        config, "retention.rule",
                        {{"hamming", CrushRule::hamming}, {"position", CrushRule::position}}),
                    .block_tokens = config.integer("retention.block_tokens")},
          .merge = {.share = config.number("retention.merge"),
                    .chunk = config.integer("retention.merge_chunk")}};
}

policies::ReplacementOptions replacement_options(const Config& config) {
  policies::ReplacementOptions options;
  for (const policies::ReplacementEntry& entry : policies::replacement_policies()) {
    if (!entry.setting) continue;
    options.*entry.setting->value = config.integer(entry.setting->key);
  }
  return options;
}

CacheGranularity cache_granularity(const Config& config) {
  const auto named = find_cache_granularity(config.text("cache.granularity"));
  if (named) return *named;
  // A block that the device keeps needs no page of the host's. Where it keeps rows, others of their
  // blocks will be wanted.
  for (const char* const tier : {"tier.nvme.path", "tier.remote.url", "daemon.socket"}) {
    if (!config.text(tier).empty()) return CacheGranularity::block;
  }
  return usual_granularity(config.text("cache.policy"));
}

/// The keys of a share of the model, and how many the shape has.
struct ShareKeys {
  std::string_view whole;
  std::string_view first;
  std::size_t count;
};

Status check_share(const ModelShare& share, const ShareKeys& keys) {
  const std::size_t whole = share.whole_for(keys.count);
  if (share.first <= whole && keys.count <= whole - share.first) return {};
  return fail(Errc::invalid_argument,
              "{} is {} and {} is {}: the shape has {}, which reach beyond the model", keys.first,
              share.first, keys.whole, share.whole, keys.count);
}

Status check_prefixes(const PrefixOptions& prefixes, const KvShape& shape,
                      std::size_t block_tokens) {
  if (prefixes.model.empty()) return {};
  if (prefixes.chunk_tokens == 0 || prefixes.chunk_tokens % block_tokens != 0) {
    return fail(Errc::invalid_argument,
                "tier.chunk_tokens is {}; use a multiple of kv.block_tokens, {}",
                prefixes.chunk_tokens, block_tokens);
  }
  TERRACE_TRY(check_share(prefixes.kv_heads,
                          {"tier.model_kv_heads", "tier.first_kv_head", shape.kv_heads}));
  return check_share(prefixes.layers, {"tier.model_layers", "tier.first_layer", shape.layers});
}

CacheOptions cache_options(const Config& config) {
  const std::optional<std::size_t> tokens = config.integer_or_auto("cache.tokens");
  return {.policy = tokens == std::size_t{0} ? "none" : config.text("cache.policy"),
          .admission = config.text("cache.admission"),
          .granularity = cache_granularity(config),
          .tokens = tokens.value_or(0),
          .sequence_tokens = config.integer_or_auto("cache.sequence_tokens").value_or(0),
          .replacement = replacement_options(config),
          .refill = {.horizon_steps = config.number("cache.horizon")}};
}

}  // namespace

Result<RuntimeOptions> RuntimeOptions::from(const Config& config, const KvShape& shape) {
  RuntimeOptions options;
  options.shape = shape;
  options.shape.dtype = *parse_dtype(config.text("kv.dtype"));
  options.policy = config.text("retrieval.policy");
  options.retrieval = retrieval_options(config);
  options.retention_policy = config.text("retention.policy");
  options.retention = retention_options(config);
  options.dropped = meaning_of<DroppedTokens>(
      config, "retention.dropped",
      {{"release", DroppedTokens::release}, {"keep", DroppedTokens::keep}});
  options.held_share = config.number("retention.hold");
  options.budget = config.budget("retrieval.budget");
  options.budget_min = config.integer("retrieval.budget_min");
  options.sink_tokens = config.integer("retrieval.sink_tokens");
  options.window_share = config.number("retrieval.window_share");
  options.dense_layers = config.integer("retrieval.dense_layers");
  options.when = meaning_of<RetrievalWhen>(
      config, "retrieval.when",
      {{"always", RetrievalWhen::always}, {"spilled", RetrievalWhen::spilled}});
  options.prompts = meaning_of<PromptAttention>(
      config, "retrieval.prompts",
      {{"exact", PromptAttention::exact}, {"retrieved", PromptAttention::retrieved}});
  options.placement = meaning_of<Placement>(
      config, "placement",
      {{"offload", Placement::offload}, {"resident_first", Placement::resident_first}});
  options.index_residency = meaning_of<IndexResidency>(config, "index.residency",
                                                       {{"auto", IndexResidency::automatic},
                                                        {"device", IndexResidency::device},
                                                        {"host", IndexResidency::host}});
  options.until_ready = meaning_of<UntilReady>(
      config, "index.until_ready",
      {{"auto", UntilReady::exact}, {"exact", UntilReady::exact}, {"wait", UntilReady::wait}});
  options.refresh = {.tokens = config.integer("index.refresh_tokens")};
  options.block_tokens = config.integer("kv.block_tokens");
  options.cache = cache_options(config);
  options.below_host.file = config.text("tier.nvme.path");
  options.below_host.file_bytes = config.size_bytes("tier.nvme.bytes");
  options.prefixes = {
      .model = config.text("tier.model"),
      .adapter = config.text("tier.adapter"),
      .rope = config.text("tier.rope"),
      .kv_heads = {.whole = config.integer("tier.model_kv_heads"),
                   .first = config.integer("tier.first_kv_head")},
      .layers = {.whole = config.integer("tier.model_layers"),
                 .first = config.integer("tier.first_layer")},
      .chunk_tokens = config.integer("tier.chunk_tokens"),
      .load = meaning_of<PrefixLoad>(
          config, "tier.load", {{"faster", PrefixLoad::faster}, {"always", PrefixLoad::always}}),
      .remote = {.url = config.text("tier.remote.url"),
                 .ttl = config.duration("tier.remote.ttl"),
                 .deadline = config.duration("tier.remote.deadline")},
      .daemon = {.socket = config.text("daemon.socket"),
                 .user = config.text("daemon.user"),
                 .deadline = config.duration("daemon.deadline")}};
  options.planning.iterations = config.integers_or_auto("planning.iterations");
  options.planning.limits = {.iterations_min = config.integer("planning.iterations_min"),
                             .iterations_max = config.integer("planning.iterations_max")};
  options.host_threads = config.integer("threads.host");
  options.counters_file = config.text("stats.file");
  options.mass_every = config.integer("stats.mass_every");
  options.deadline = config.duration("deadline");
  options.seed = config.integer("seed");
  TERRACE_TRY(options.validate());
  return options;
}

Status RuntimeOptions::validate() const {
  TERRACE_TRY(shape.validate());
  if (std::max(shape.layers, shape.query_heads) > shape_max) {
    return fail(Errc::invalid_argument, "{} layers, {} query heads; a model may have {} of each",
                shape.layers, shape.query_heads, shape_max);
  }
  TERRACE_TRY(budget.validate());
  if (sink_tokens > sinks_max) {
    return fail(Errc::invalid_argument, "retrieval.sink_tokens is {}; use up to {}", sink_tokens,
                sinks_max);
  }
  if (std::ranges::find(planning.iterations, 0U) != planning.iterations.end()) {
    return fail(Errc::invalid_argument, "planning.iterations has a 0; use 1 or more");
  }
  if (block_tokens == 0 || block_tokens > 65'536) {
    return fail(Errc::invalid_argument, "kv.block_tokens is {}; use 1 to 65536", block_tokens);
  }
  if (!(window_share >= 0 && window_share <= 1)) {
    return fail(Errc::invalid_argument, "retrieval.window_share is {}; use 0 to 1", window_share);
  }
  if (!(held_share > 0 && held_share < 1)) {
    return fail(Errc::invalid_argument, "retention.hold is {}; use a number between 0 and 1",
                held_share);
  }
  if (planning.limits.iterations_min > planning.limits.iterations_max) {
    return fail(Errc::invalid_argument, "planning.iterations_min {} is above iterations_max {}",
                planning.limits.iterations_min, planning.limits.iterations_max);
  }
  if (dense_layers > shape.layers) {
    return fail(Errc::invalid_argument, "retrieval.dense_layers {}: the model has {} layers",
                dense_layers, shape.layers);
  }
  TERRACE_TRY(check_prefixes(prefixes, shape, block_tokens));
  if (host_threads == 0 || deadline <= Duration::zero()) {
    return fail(Errc::invalid_argument, "threads.host and deadline must be above zero");
  }
  return {};
}

Status RuntimeOptions::check_tiers() const {
  TERRACE_TRY(check_daemon_tier(prefixes));
  return check_remote_tier(*this);
}

policies::BudgetTerms RuntimeOptions::budget_terms(std::size_t tokens) const noexcept {
  policies::BudgetTerms terms{.budget_tokens = budget.tokens(tokens),
                              .sink_tokens = sink_tokens,
                              .window_share = window_share,
                              .retains = own_retention != nullptr || retention_policy != "none"};
  if (budget.kind == TokenBudget::Kind::share) {
    // The number of sinks is fixed while a budget grows, since an index begins after them.
    const std::size_t needed = terms.retains ? 1 : sink_tokens + 3;
    terms.budget_tokens = std::max({terms.budget_tokens, budget_min, needed});
  }
  if (terms.retains && dropped == DroppedTokens::keep) terms.held_share = held_share;
  if (budget.kind == TokenBudget::Kind::mass) terms.window_tokens_max = mass_window_tokens;
  return terms;
}

}  // namespace terrace
