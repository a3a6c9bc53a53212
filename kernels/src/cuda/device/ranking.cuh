// Sorting by weight, within one block.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace terrace::kernels::cuda {

/// Items and their keys, in shared or global memory.
struct Ranking {
  std::uint32_t* keys;
  std::uint32_t* items;

  /// Puts the `count` items in falling order of their keys, the lower item first where keys are
  /// equal. Every thread of the block calls it, after a barrier; another barrier must follow.
  ///
  /// Source: bitonic sort, Batcher 1968. Runs are merged from their outer ends inwards, so that all
  /// comparisons put the earlier item to the front and no padding is needed.
  __device__ void sort(unsigned count) const {
    for (unsigned half = 1; half < count; half *= 2) {
      for (unsigned t = threadIdx.x;; t += blockDim.x) {
        const unsigned offset = t & (half - 1);
        const unsigned begin = (t - offset) * 2;
        if (begin + offset >= count) break;
        compare(begin + offset, begin + 2 * half - 1 - offset, count);
      }
      __syncthreads();
      for (unsigned apart = half / 2; apart > 0; apart /= 2) {
        for (unsigned t = threadIdx.x;; t += blockDim.x) {
          const unsigned offset = t & (apart - 1);
          const unsigned first = (t - offset) * 2 + offset;
          if (first >= count) break;
          compare(first, first + apart, count);
        }
        __syncthreads();
      }
    }
  }

 private:
  __device__ void compare(unsigned first, unsigned second, unsigned count) const {
    if (second >= count) return;
    const std::uint32_t key = keys[first];
    const std::uint32_t other_key = keys[second];
    const std::uint32_t item = items[first];
    const std::uint32_t other = items[second];
    if (key > other_key || (key == other_key && item < other)) return;
    keys[first] = other_key;
    keys[second] = key;
    items[first] = other;
    items[second] = item;
  }
};

}  // namespace terrace::kernels::cuda
