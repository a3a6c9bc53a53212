// Sums over the lanes of a warp and the threads of a block.
#pragma once

#include <cuda_runtime.h>

namespace terrace::kernels::cuda {

inline constexpr unsigned all_lanes = 0xffffffffU;

__device__ inline float warp_sum(float value) {
  for (int mask = warpSize / 2; mask > 0; mask /= 2)
    value += __shfl_xor_sync(all_lanes, value, mask);
  return value;
}

__device__ inline float warp_max(float value) {
  for (int mask = warpSize / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, __shfl_xor_sync(all_lanes, value, mask));
  }
  return value;
}

/// Sums over a block of `threads`, and each thread's place in them.
template <unsigned threads>
class BlockScan {
 public:
  static constexpr unsigned warps = threads / 32;
  struct Shared {
    unsigned totals[warps];
  };

  __device__ explicit BlockScan(Shared& shared) : shared_(shared) {}

  /// Returns the sum of the values of the threads before this one; `total` becomes that of all.
  /// Every thread of the block calls it.
  __device__ unsigned exclusive_sum(unsigned value, unsigned& total) {
    const unsigned lane = threadIdx.x % 32;
    const unsigned warp = threadIdx.x / 32;
    unsigned inclusive = value;
    for (unsigned delta = 1; delta < 32; delta *= 2) {
      const unsigned below = __shfl_up_sync(all_lanes, inclusive, delta);
      if (lane >= delta) inclusive += below;
    }
    __syncthreads();  // the totals of the call before have been read
    if (lane == 31) shared_.totals[warp] = inclusive;
    __syncthreads();
    unsigned before = 0;
    total = 0;
    for (unsigned i = 0; i < warps; ++i) {
      if (i < warp) before += shared_.totals[i];
      total += shared_.totals[i];
    }
    return before + inclusive - value;
  }

 private:
  Shared& shared_;
};

}  // namespace terrace::kernels::cuda
