#include "keep_best.hpp"

#include <cmath>
#include <numeric>

#include "entry_groups.hpp"
#include "rows.hpp"
#include "soft_matching.hpp"

namespace terrace::policies {

KeepBest::KeepBest(std::string_view name, std::unique_ptr<Importance> importance,
                   const MergeOptions& merge)
    : importance_(std::move(importance)), merge_(merge), traits_(importance_->traits()) {
  traits_.name = name;
  traits_.merges = merge.share > 0;
}

std::vector<EntryMap> KeepBest::do_retain(const RetainRequest& request) const {
  const auto merged =
      static_cast<std::size_t>(std::lround(merge_.share * static_cast<double>(request.keep)));
  std::vector<EntryMap> maps;
  for (std::size_t head = 0; head < request.heads.size(); ++head) {
    const Candidates& candidates = request.heads[head];
    std::vector<std::uint32_t> all(candidates.size());
    std::iota(all.begin(), all.end(), 0U);
    const auto best = best_of(importance_->rate(request, head), all, request.keep - merged);
    EntryGroups groups(candidates.size());
    groups.keep(best);
    if (merged > 0) {
      const auto rest = without(all, best);
      for (const auto& group :
           match_softly(request.shape, candidates, rest, merged, merge_.chunk)) {
        groups.merge(group);
      }
    }
    maps.push_back(groups.map());
  }
  return maps;
}

MadeRetentionPolicy keep_best(std::string_view name, std::unique_ptr<Importance> importance,
                              const RetentionOptions& options) {
  TERRACE_TRY(check(options.pool));
  TERRACE_TRY(check(options.merge));
  return std::make_unique<KeepBest>(name, std::move(importance), options.merge);
}

Status check(const MergeOptions& options) {
  if (!(options.share >= 0 && options.share <= 1)) {
    return fail(Errc::invalid_argument, "retention.merge is {}; use 0 to 1", options.share);
  }
  if (options.chunk != 1) return {};
  return fail(Errc::invalid_argument,
              "chunks of one entry match nothing; use 0 (all) or 2 and more");
}

Status check(const PoolOptions& options) {
  if (options.width % 2 == 1) return {};
  return fail(Errc::invalid_argument, "retention.pool is {}; use an odd number of positions",
              options.width);
}

}  // namespace terrace::policies
