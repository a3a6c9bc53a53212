// Rows with a NaN or infinity take no part in means, and seed no clusters.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace terrace::policies {

inline bool all_finite(std::span<const float> row) noexcept {
  return std::ranges::all_of(row, [](float x) { return std::isfinite(x); });
}

}  // namespace terrace::policies
