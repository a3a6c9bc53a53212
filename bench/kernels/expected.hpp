// Compares outputs of attention with those of the reference.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>

#include "terrace/core/result.hpp"

namespace terrace::bench {

/// Outputs are sums of up to 2^20 products of f16 with f32; the reference adds in double.
/// Errors: corrupt, naming the first output that is too far off.
inline Status expect_near(std::span<const float> outputs, std::span<const float> expected,
                          float tolerance = 1e-4F) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!(std::fabs(outputs[i] - expected[i]) <= tolerance)) {
      return fail(Errc::corrupt, "output {} is {}, not {}", i, outputs[i], expected[i]);
    }
  }
  return {};
}

}  // namespace terrace::bench
