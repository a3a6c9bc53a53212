// Randomness of tests: one seed, from TERRACE_SEED or 1, printed where a test fails.
#pragma once

#include <cmath>
#include <cstdlib>
#include <string>

#include "terrace/core/rng.hpp"

namespace terrace::testing {

inline std::uint64_t seed() {
  const char* text = std::getenv("TERRACE_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

inline std::string seed_text() { return "TERRACE_SEED=" + std::to_string(seed()); }

/// Returns a number of the normal distribution (Box and Muller).
inline float normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return static_cast<float>(radius * std::cos(6.283185307179586 * rng.uniform()));
}

}  // namespace terrace::testing
