#include "runtime_plan.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "terrace/core/bytes.hpp"

namespace terrace {
namespace {

/// Errors: unsupported, invalid_argument, where options ask of a policy what it cannot do.
Status check_policy(const RuntimeOptions& options, const RetrievalTraits& traits,
                    const IndexLayout& layout) {
  // A policy that selects nothing has nothing to stop or to cache.
  if (!traits.selects) return {};
  const CacheOptions& cache = options.cache;
  const bool clusters = cache.granularity == CacheGranularity::cluster;
  if (options.budget.kind == TokenBudget::Kind::mass && !traits.stops_at_mass) {
    return fail(Errc::unsupported,
                "policy {} cannot stop at a share of attention mass; set retrieval.policy to wave "
                "and retrieval.refine to off, or retrieval.budget to a share or a number of tokens",
                traits.name);
  }
  if (layout.empty()) {
    return fail(Errc::invalid_argument,
                "policy {} selects, and its index has no chunks to select from", traits.name);
  }
  if (clusters && layout.chunk_clusters == 0) {
    return fail(Errc::unsupported,
                "policy {} has no clusters to cache; set cache.granularity to block or row",
                traits.name);
  }
  return check_cache(cache);
}

Status check_dropping(const RetentionTraits& retention, const RetrievalTraits& retrieval) {
  if (!retrieval.selects && !retrieval.keeps_everything) return {};
  return fail(Errc::unsupported,
              "retention.policy {} drops tokens that retrieval.policy {} would attend to; set "
              "retrieval.policy to streaming, or retention.dropped to keep",
              retention.name, retrieval.name);
}

Status check_holding(const RetentionTraits& retention, const RetrievalTraits& retrieval) {
  if (!retrieval.leaves_out_held) {
    return fail(Errc::unsupported,
                "retention.dropped is keep, and retrieval.policy {} cannot select beside entries "
                "that are held{}; use pqcache, qpq, oracle, sparq or infinigen, and set "
                "retrieval.estimate_tokens to 0",
                retrieval.name,
                retrieval.estimates_rest ? ", and would estimate these a second time" : "");
  }
  if (!retention.merges && retention.scores != ScoredQueries::all) return {};
  return fail(Errc::unsupported,
              "retention.dropped is keep, and retention.policy {} {}; use recent, snapkv, "
              "pyramidkv or smartkv, and set retention.merge to 0",
              retention.name,
              retention.merges ? "makes entries of several tokens"
                               : "needs the weights of tokens that are not attended to");
}

}  // namespace

RuntimePlan::RuntimePlan(RuntimeOptions chosen, Policies policies, IndexLayout indexes)
    : options(std::move(chosen)),
      policy(std::move(policies.retrieval)),
      retention(std::move(policies.retention)),
      layout(indexes) {}

Result<RuntimePlan> RuntimePlan::make(RuntimeOptions options) {
  TERRACE_TRY(options.validate());
  TERRACE_ASSIGN(Policies policies, make_policies(options));
  TERRACE_ASSIGN(const IndexLayout layout, policies.retrieval->index_layout(options.shape));
  TERRACE_TRY(check_policy(options, policies.retrieval->traits(), layout));
  // Names are checked now, not at the first prompt.
  if (!options.cache.none()) TERRACE_TRY(make_resident_cache(options.cache, 1, 1));
  return RuntimePlan(std::move(options), std::move(policies), layout);
}

Result<RuntimePlan::Policies> RuntimePlan::make_policies(const RuntimeOptions& options) {
  Policies policies{.retrieval = options.own_policy, .retention = options.own_retention};
  if (policies.retrieval == nullptr) {
    TERRACE_ASSIGN(policies.retrieval,
                   policies::make_retrieval_policy(options.policy, options.retrieval));
  }
  if (policies.retention == nullptr && options.retention_policy != "none") {
    TERRACE_ASSIGN(policies.retention,
                   policies::make_retention_policy(options.retention_policy, options.retention));
  }
  if (policies.retention != nullptr) {
    const auto check = options.dropped == DroppedTokens::keep ? check_holding : check_dropping;
    TERRACE_TRY(check(policies.retention->traits(), policies.retrieval->traits()));
  }
  return policies;
}

policies::BudgetTerms RuntimePlan::budget_terms(std::size_t tokens) const noexcept {
  policies::BudgetTerms terms = options.budget_terms(tokens);
  if (keeps_everything()) terms.budget_tokens = tokens;
  return terms;
}

bool RuntimePlan::budget_grows() const noexcept {
  return options.budget.kind == TokenBudget::Kind::share && !retains() && !keeps_everything();
}

std::size_t RuntimePlan::most_kept(std::size_t mean) const noexcept {
  std::size_t most = 0;
  const std::size_t heads = retention == nullptr ? 0 : shape().layers * shape().kv_heads;
  for (std::size_t i = 0; i < heads; ++i) {
    most = std::max(most, retention->keep_of({.shape = shape(),
                                              .layer = static_cast<LayerId>(i / shape().kv_heads),
                                              .head = static_cast<HeadId>(i % shape().kv_heads),
                                              .mean = mean,
                                              .tokens = std::numeric_limits<std::size_t>::max()}));
  }
  return most;
}

std::vector<std::size_t> RuntimePlan::entry_rooms(LayerId layer, const policies::BudgetSplit& split,
                                                  std::size_t tokens) const {
  const std::size_t outside = split.sinks + split.window;
  std::vector<std::size_t> rooms;
  rooms.reserve(shape().kv_heads);
  for (std::size_t head = 0; head < shape().kv_heads; ++head) {
    rooms.push_back(retention->keep_of({.shape = shape(),
                                        .layer = layer,
                                        .head = static_cast<HeadId>(head),
                                        .mean = split.kept,
                                        .tokens = tokens - std::min(tokens, outside)}));
  }
  return rooms;
}

Status RuntimePlan::check_countable(std::size_t tokens) const {
  if (tokens > max_positions) {
    return fail(Errc::invalid_argument, "{} tokens; a sequence may have {}", tokens, max_positions);
  }
  // More than a number of a query takes anywhere: as a row, in an index, in what steps work in.
  Result<std::size_t> bytes = 256;
  for (const std::size_t factor : {tokens, shape().layers, shape().query_heads, shape().head_dim}) {
    bytes = checked_multiply(*bytes, factor);
    if (bytes) continue;
    return fail(Errc::invalid_argument,
                "{} tokens of this model take more bytes than 64 bits count", tokens);
  }
  return {};
}

}  // namespace terrace
