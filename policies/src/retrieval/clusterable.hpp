// Rows that k-means leaves out take no part in means, and seed no clusters.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "terrace/kernels/kmeans.hpp"

namespace terrace::policies {

/// Looks at all of a row at once, which vectors do faster than they stop at the first.
inline bool can_be_clustered(std::span<const float> row) noexcept {
  // As whole numbers sizes have the order they have as floats, and NaNs follow.
  constexpr std::uint32_t sign = 0x80000000;
  constexpr auto limit = std::bit_cast<std::uint32_t>(kernels::clustered_below);
  bool odd = false;
  for (const float x : row) odd |= (std::bit_cast<std::uint32_t>(x) & ~sign) >= limit;
  return !odd;
}

}  // namespace terrace::policies
