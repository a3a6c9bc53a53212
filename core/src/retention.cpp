#include "terrace/core/retention.hpp"

#include <algorithm>
#include <numeric>

namespace terrace {
namespace {

/// Errors: invalid_argument: an array of the request is not as long as the others say.
Status check(const RetainRequest& request, const RetentionTraits& traits) {
  const KvShape& shape = request.shape;
  const auto is_whole = [](const Candidates& head) {
    return head.rows.size() == head.size() && head.degrees.size() == head.size();
  };
  if (request.heads.size() != shape.kv_heads || !std::ranges::all_of(request.heads, is_whole)) {
    return fail(Errc::invalid_argument, "retain: candidates of {} KV heads; the shape has {}",
                request.heads.size(), shape.kv_heads);
  }
  const bool rates = traits.scores != ScoredQueries::none || traits.needs_pre_rope_keys;
  const std::size_t wanted = rates ? traits.score_heads(shape) * request.length : 0;
  if (request.scores.size() != wanted) {
    return fail(Errc::invalid_argument, "policy {} needs {} scores; the request has {}",
                traits.name, wanted, request.scores.size());
  }
  return {};
}

/// Errors: invalid_argument: no whole number of tokens, or not as many ratings.
Status check(const RateRequest& request) {
  const KvShape& shape = request.shape;
  TERRACE_TRY(shape.validate());
  const std::size_t token = shape.kv_heads * shape.head_dim;
  const std::size_t tokens = request.keys.size() / token;
  if (request.keys.size() % token != 0 || request.ratings.size() != tokens * shape.kv_heads ||
      index(request.layer) >= shape.layers) {
    return fail(Errc::invalid_argument,
                "rate: {} numbers of keys and {} ratings, of layer {}; {} layers of {} KV heads of "
                "{} were expected",
                request.keys.size(), request.ratings.size(), index(request.layer), shape.layers,
                shape.kv_heads, shape.head_dim);
  }
  return {};
}

}  // namespace

EntryMap keep_all(std::size_t candidates) {
  EntryMap map{.target = std::vector<std::uint32_t>(candidates), .entries = candidates};
  std::iota(map.target.begin(), map.target.end(), 0U);
  return map;
}

Status RetentionPolicy::rate(const RateRequest& request, Parallel& threads) const {
  if (!traits().needs_pre_rope_keys) {
    return fail(Errc::unsupported, "policy {} rates no keys", traits().name);
  }
  TERRACE_TRY(check(request));
  return do_rate(request, threads);
}

Result<std::vector<EntryMap>> RetentionPolicy::retain(const RetainRequest& request) const {
  TERRACE_TRY(check(request, traits()));
  std::vector<EntryMap> maps = do_retain(request);
  for (std::size_t head = 0; head < maps.size(); ++head) {
    const Candidates& candidates = request.heads[head];
    if (candidates.size() <= candidates.keep) maps[head] = keep_all(candidates.size());
  }
  return maps;
}

}  // namespace terrace
