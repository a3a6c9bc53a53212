#include "terrace/kernels/rotation.hpp"

#include <cmath>

namespace terrace::kernels {
namespace {

/// Adds and subtracts neighbours at a distance of 1, 2, 4 and so on: `size` is a power of two.
void transform(float* vector, std::size_t size) noexcept {
  for (std::size_t half = 1; half < size; half *= 2) {
    for (std::size_t begin = 0; begin < size; begin += 2 * half) {
      float* const low = vector + begin;
      float* const high = low + half;
      for (std::size_t i = 0; i < half; ++i) {
        const float a = low[i];
        const float b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

}  // namespace

void rotate(float* vector, std::size_t dims, std::uint64_t seed) noexcept {
  for (std::size_t round = 0; round < rotation_rounds(dims); ++round) {
    const auto [begin, size] = rotation_round(dims, round);
    const float scale = 1.0F / std::sqrt(static_cast<float>(size));
    for (std::size_t i = begin; i < begin + size; ++i) {
      vector[i] *= rotation_sign(round, i, seed) * scale;
    }
    transform(vector + begin, size);
  }
}

}  // namespace terrace::kernels
