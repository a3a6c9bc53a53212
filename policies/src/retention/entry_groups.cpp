#include "entry_groups.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace terrace::policies {

namespace {

std::vector<std::uint32_t> numbers_below(std::size_t count) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  return numbers;
}

}  // namespace

std::vector<std::uint32_t> best_of(std::span<const float> importance, std::size_t count) {
  std::vector<std::uint32_t> best = numbers_below(importance.size());
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    return importance[a] != importance[b] ? importance[a] > importance[b] : a < b;
  };
  count = std::min(count, best.size());
  std::ranges::nth_element(best, best.begin() + static_cast<std::ptrdiff_t>(count), before);
  best.resize(count);
  std::ranges::sort(best);
  return best;
}

std::vector<std::uint32_t> all_but(std::span<const std::uint32_t> some, std::size_t candidates) {
  std::vector<std::uint32_t> rest;
  rest.reserve(candidates - some.size());
  std::ranges::set_difference(numbers_below(candidates), some, std::back_inserter(rest));
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
