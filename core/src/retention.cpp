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
  const std::size_t heads = traits.scores_of_query_heads ? shape.query_heads : shape.kv_heads;
  const std::size_t wanted = rates ? heads * request.length : 0;
  if (request.scores.size() != wanted) {
    return fail(Errc::invalid_argument, "policy {} needs {} scores; the request has {}",
                traits.name, wanted, request.scores.size());
  }
  return {};
}

}  // namespace

EntryMap keep_all(std::size_t candidates) {
  EntryMap map{.target = std::vector<std::uint32_t>(candidates), .entries = candidates};
  std::iota(map.target.begin(), map.target.end(), 0U);
  return map;
}

Result<std::vector<EntryMap>> RetentionPolicy::retain(const RetainRequest& request) const {
  TERRACE_TRY(check(request, traits()));
  std::vector<EntryMap> maps = do_retain(request);
  for (std::size_t head = 0; head < maps.size(); ++head) {
    const std::size_t candidates = request.heads[head].size();
    if (candidates <= request.keep) maps[head] = keep_all(candidates);
  }
  return maps;
}

}  // namespace terrace
