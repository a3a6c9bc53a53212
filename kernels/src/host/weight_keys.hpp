// Weights as keys: 32-bit integers in the order of the floats, NaN lowest, the two zeros equal.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace terrace::kernels::host {

using Key = std::int32_t;
constexpr Key lowest_key = std::numeric_limits<Key>::min();
constexpr Key highest_key = std::numeric_limits<Key>::max();

inline Key key_of(float weight) noexcept {
  if (std::isnan(weight)) return lowest_key;
  const auto bits = std::bit_cast<Key>(weight + 0.0F);
  return bits < 0 ? bits ^ highest_key : bits;
}

/// Keys above `key` are chosen, and the first `ties` that equal it.
struct Threshold {
  Key key = lowest_key;
  std::size_t ties = 0;
};

}  // namespace terrace::kernels::host
