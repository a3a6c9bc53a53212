// Seeded test data.
#pragma once

#include <cstdint>
#include <vector>

#include "terrace/core/rng.hpp"

namespace terrace {

/// Returns `count` floats in [-scale, scale).
inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed, double scale = 1) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(scale * (2 * rng.uniform() - 1));
  return values;
}

}  // namespace terrace
