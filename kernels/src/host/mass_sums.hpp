// What clusters weigh at least, at most and by estimate for a query, added up.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

namespace terrace::kernels::host {

/// Clusters side by side, as their index describes them.
struct MassTerms {
  static constexpr std::size_t size_max = 64;

  std::size_t count = 0;
  alignas(64) std::array<float, size_max> radius;
  alignas(64) std::array<float, size_max> rounding;
  alignas(64) std::array<float, size_max> variance;  ///< 0 where scores have no spread in them
  alignas(64) std::array<float, size_max> whole;     ///< 1: all members are candidates; else 0
};

struct MassQuery {
  float norm = 0;                 ///< |q| / sqrt(head_dim)
  float square = 0;               ///< |q|^2 / head_dim
  float spread_max = 0;           ///< of a score
  const float* scores = nullptr;  ///< [size_max]: those of the clusters first
};

/// What clusters weigh at least and at most, relative to exp(`base`), which no term exceeds.
struct MassSums {
  double base = -std::numeric_limits<double>::infinity();
  double low = 0;
  double high = 0;
};

/// What logits weigh, relative to exp(`base`). For what clusters weigh by estimate it is a base of
/// its own: next to the most that a cluster far out could weigh, estimates would vanish.
struct MassEstimate {
  double base = -std::numeric_limits<double>::infinity();
  double sum = 0;

  /// The logarithm of the whole.
  [[nodiscard]] double log() const noexcept {
    return sum > 0 ? base + std::log(sum) : -std::numeric_limits<double>::infinity();
  }
};

/// Adds clusters to sums, as log_mass_bounds() has them. Sums of what is not a number are none.
void add_mass(const MassTerms& terms, const MassQuery& query, MassSums& sums) noexcept;
/// Adds `count` logits, of [MassTerms::size_max] that can be read. One that is +inf or NaN makes
/// the estimate none.
void add_logits(const float* logits, std::size_t count, MassEstimate& estimate) noexcept;

}  // namespace terrace::kernels::host
