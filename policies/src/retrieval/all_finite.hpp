// Rows with a NaN or infinity take no part in means, and seed no clusters.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace terrace::policies {

/// Looks at all of a row at once, which vectors do faster than they stop at the first.
inline bool all_finite(std::span<const float> row) noexcept {
  constexpr std::uint32_t exponent = 0x7f800000;
  bool odd = false;
  for (const float x : row) odd |= (std::bit_cast<std::uint32_t>(x) & exponent) == exponent;
  return !odd;
}

}  // namespace terrace::policies
