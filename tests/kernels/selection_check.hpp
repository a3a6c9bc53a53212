// Checks a selection against exact weights, where rounding may swap what is nearly equal.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

namespace terrace::testing {

/// Returns whether `ids` are min(count, n) ascending candidates (from `begin` on), and no weight
/// among them is below that of an omitted candidate by more than `tolerance` relative to the
/// largest. Candidates with weight NaN cannot be chosen, and do not count in n.
inline bool is_top(std::span<const std::uint32_t> ids, std::size_t begin, std::size_t count,
                   const std::vector<double>& weights, double tolerance) {
  const auto choices = static_cast<std::size_t>(
      std::ranges::count_if(weights, [](double weight) { return !std::isnan(weight); }));
  if (ids.size() != std::min(count, choices)) return false;
  std::vector<bool> chosen(weights.size(), false);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < begin || ids[i] - begin >= weights.size()) return false;
    if (i > 0 && ids[i] <= ids[i - 1]) return false;
    chosen[ids[i] - begin] = true;
  }
  double least_in = HUGE_VAL;
  double most_out = -HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (std::isnan(weights[i])) {
      if (chosen[i]) return false;
      continue;
    }
    largest = std::max(largest, std::abs(weights[i]));
    if (chosen[i]) least_in = std::min(least_in, weights[i]);
    if (!chosen[i]) most_out = std::max(most_out, weights[i]);
  }
  return least_in >= most_out - tolerance * largest;
}

}  // namespace terrace::testing
