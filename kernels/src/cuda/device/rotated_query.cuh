// A query rotated and rounded to whole numbers by a block, with the numbers that the host makes.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>

#include "device/choice.cuh"
#include "terrace/kernels/rotation.hpp"

namespace terrace::kernels::cuda {

struct RotatedQuery {
  float* numbers;  ///< shared: [dims]
  unsigned dims;

  /// Rotates a query as rotate() does, with the same additions. All threads of the block call it.
  template <unsigned threads>
  __device__ void rotate(const float* query) const {
    for (unsigned i = threadIdx.x; i < dims; i += threads) numbers[i] = query[i];
    for (std::size_t number = 0; number < rotation_rounds(dims); ++number) {
      const RotationRound round = rotation_round(dims, number);
      const auto begin = static_cast<unsigned>(round.begin);
      const auto size = static_cast<unsigned>(round.size);
      const float factor = 1.0F / sqrtf(static_cast<float>(size));
      __syncthreads();
      for (unsigned i = threadIdx.x; i < size; i += threads) {
        numbers[begin + i] *= rotation_sign(number, begin + i, rotation_seed) * factor;
      }
      for (unsigned half = 1; half < size; half *= 2) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < size / 2; i += threads) {
          const unsigned offset = i & (half - 1);
          float* const low = numbers + begin + (i - offset) * 2 + offset;
          const float a = low[0];
          const float b = low[half];
          low[0] = a + b;
          low[half] = a - b;
        }
      }
    }
    __syncthreads();
  }

  /// Rounds the numbers to whole ones of at most `most`, as round_query() does, and returns their
  /// unit. If the query is not finite, the unit is NaN and the numbers are 0. All threads of the
  /// block call it. `shared`: [threads / 32].
  template <unsigned threads>
  __device__ float round(float most, float* shared) const {
    float largest = 0;
    bool finite = true;
    for (unsigned i = threadIdx.x; i < dims; i += threads) {
      largest = fmaxf(largest, fabsf(numbers[i]));
      finite = finite && fabsf(numbers[i]) <= FLT_MAX;
    }
    largest = reduce_block(finite ? largest : INFINITY, Maximum(), shared);
    if (largest == 0) return 0;
    const float unit = largest / most;
    for (unsigned i = threadIdx.x; i < dims; i += threads) {
      const float number = rintf(numbers[i] / unit);
      numbers[i] = largest == INFINITY ? 0.0F : fminf(fmaxf(number, -most), most);
    }
    __syncthreads();
    return largest == INFINITY ? NAN : unit;
  }
};

}  // namespace terrace::kernels::cuda
