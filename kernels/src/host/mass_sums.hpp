// Adds up the estimated weights of clusters for a query.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>

namespace terrace::kernels::host {

/// Logits that are added at a time.
inline constexpr std::size_t mass_logits_max = 64;

/// The sum of the weights of logits, relative to exp(`base`).
struct MassEstimate {
  double base = -std::numeric_limits<double>::infinity();
  double sum = 0;

  /// The logarithm of the whole.
  [[nodiscard]] double log() const noexcept {
    return sum > 0 ? base + std::log(sum) : -std::numeric_limits<double>::infinity();
  }
};

/// Adds `count` logits, of [mass_logits_max] that can be read. A logit of +inf or NaN makes the
/// estimate invalid.
void add_logits(const float* logits, std::size_t count, MassEstimate& estimate) noexcept;

}  // namespace terrace::kernels::host
