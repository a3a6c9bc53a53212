#include "keep_best.hpp"

#include <cmath>

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
  std::vector<EntryMap> maps;
  for (std::size_t head = 0; head < request.heads.size(); ++head) {
    const Candidates& candidates = request.heads[head];
    const auto merged =
        static_cast<std::size_t>(std::lround(merge_.share * static_cast<double>(candidates.keep)));
    const auto best = best_of(importance_->rate(request, head), candidates.keep - merged);
    EntryGroups groups(candidates.size());
    groups.keep(best);
    if (merged > 0) {
      const auto rest = all_but(best, candidates.size());
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
  return std::make_unique<KeepBest>(name, std::move(importance), options.merge);
}

}  // namespace terrace::policies
