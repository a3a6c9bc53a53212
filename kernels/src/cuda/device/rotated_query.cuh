// Queries rotated and rounded to whole numbers by a block, with the numbers that the host makes.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>

#include "device/block_scan.cuh"
#include "terrace/kernels/rotation.hpp"

namespace terrace::kernels::cuda {

struct RotatedQueries {
  float* numbers;  ///< shared: [count, dims]
  unsigned dims;
  unsigned count = 1;

  /// Rotates `count` queries, which follow each other, as rotate() does, with the same additions.
  /// All threads of the block call it.
  template <unsigned threads>
  __device__ void rotate(const float* queries) const {
    for (unsigned i = threadIdx.x; i < count * dims; i += threads) numbers[i] = queries[i];
    for (std::size_t number = 0; number < rotation_rounds(dims); ++number) {
      const RotationRound round = rotation_round(dims, number);
      const auto begin = static_cast<unsigned>(round.begin);
      const auto size = static_cast<unsigned>(round.size);
      const float factor = 1.0F / sqrtf(static_cast<float>(size));
      __syncthreads();
      for (unsigned i = threadIdx.x; i < count * size; i += threads) {
        const unsigned element = begin + i % size;
        numbers[i / size * dims + element] *=
            rotation_sign(number, element, rotation_seed) * factor;
      }
      for (unsigned half = 1; half < size; half *= 2) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < count * (size / 2); i += threads) {
          const unsigned pair = i % (size / 2);
          const unsigned offset = pair & (half - 1);
          float* const low = numbers + i / (size / 2) * dims + begin + (pair - offset) * 2 + offset;
          const float a = low[0];
          const float b = low[half];
          low[0] = a + b;
          low[half] = a - b;
        }
      }
    }
    __syncthreads();
  }

  /// Rounds the numbers to whole ones of at most `most`, as round_query() does, and writes the unit
  /// of each query, shared: [count]. If a query is not finite, its unit is NaN and its numbers are
  /// 0. All threads of the block call it, after a barrier.
  __device__ void round(float most, float* units) const {
    for (unsigned q = threadIdx.x / 32; q < count; q += blockDim.x / 32) {
      const float unit = round_query(numbers + q * dims, most);
      if (threadIdx.x % 32 == 0) units[q] = unit;
    }
    __syncthreads();
  }

 private:
  /// Rounds one query, and returns its unit. A warp calls it together.
  __device__ float round_query(float* own, float most) const {
    float largest = 0;
    bool finite = true;
    for (unsigned i = threadIdx.x % 32; i < dims; i += 32) {
      largest = fmaxf(largest, fabsf(own[i]));
      finite = finite && fabsf(own[i]) <= FLT_MAX;
    }
    largest = warp_max(finite ? largest : INFINITY);
    if (largest == 0) return 0;
    const float unit = largest / most;
    for (unsigned i = threadIdx.x % 32; i < dims; i += 32) {
      const float number = rintf(own[i] / unit);
      own[i] = largest == INFINITY ? 0.0F : fminf(fmaxf(number, -most), most);
    }
    return largest == INFINITY ? NAN : unit;
  }
};

}  // namespace terrace::kernels::cuda
