// Comparing weights of attention, which may be small, with expected ones.
#pragma once

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

namespace terrace::testing {

/// Returns the first weight with a relative error above the absolute error of a logit of d products
/// plus the relative error of the normaliser: a few units of 2^-24 * sqrt(d) <= 1e-5 each. Empty if
/// no weight has one. A NaN equals a NaN.
inline std::string first_wrong_weight(const std::vector<float>& weights,
                                      const std::vector<float>& expected) {
  constexpr double tolerance = 5e-5;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (std::isnan(weights[i]) && std::isnan(expected[i])) continue;
    const double difference = std::abs(double{weights[i]} - double{expected[i]});
    if (difference <= tolerance * std::abs(double{expected[i]})) continue;
    return "weight " + std::to_string(i) + " is " + std::to_string(weights[i]) + ", not " +
           std::to_string(expected[i]);
  }
  return {};
}

}  // namespace terrace::testing
