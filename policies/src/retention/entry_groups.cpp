#include "entry_groups.hpp"

#include <algorithm>
#include <iterator>

namespace terrace::policies {

std::vector<std::uint32_t> best_of(std::span<const float> importance,
                                   std::span<const std::uint32_t> which, std::size_t count) {
  std::vector<std::uint32_t> best(which.begin(), which.end());
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    return importance[a] != importance[b] ? importance[a] > importance[b] : a < b;
  };
  count = std::min(count, best.size());
  const auto end = best.begin() + static_cast<std::ptrdiff_t>(count);
  std::ranges::nth_element(best, end, before);
  best.resize(count);
  std::ranges::sort(best);
  return best;
}

std::vector<std::uint32_t> without(std::span<const std::uint32_t> all,
                                   std::span<const std::uint32_t> some) {
  std::vector<std::uint32_t> rest;
  std::ranges::set_difference(all, some, std::back_inserter(rest));
  return rest;
}

void EntryGroups::keep(std::span<const std::uint32_t> candidates) {
  for (const std::uint32_t candidate : candidates) group_[candidate] = candidate;
}

void EntryGroups::merge(std::span<const std::uint32_t> candidates) {
  const std::uint32_t last = std::ranges::max(candidates);
  for (const std::uint32_t candidate : candidates) group_[candidate] = last;
}

EntryMap EntryGroups::map() const {
  EntryMap map{.target = group_};
  std::vector<std::uint32_t> number(group_.size());
  for (std::size_t i = 0; i < group_.size(); ++i) {
    if (group_[i] == i) number[i] = static_cast<std::uint32_t>(map.entries++);
  }
  for (std::uint32_t& target : map.target) {
    if (target != EntryMap::dropped) target = number[target];
  }
  return map;
}

}  // namespace terrace::policies
