// Work that needs all blocks of a launch to have done theirs: the block that ends last does it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace terrace::kernels::cuda {

/// Returns, to all threads of a block, whether it is the last of `blocks` that add to `ended`, and
/// sets that back. All that the others wrote before is there then.
__device__ inline bool ends_last(std::uint32_t* ended, unsigned blocks) {
  __threadfence();
  __syncthreads();
  bool is_last = true;
  if (threadIdx.x == 0) {
    is_last = atomicAdd(ended, 1U) + 1 == blocks;
    if (is_last) *ended = 0;
    __threadfence();
  }
  return __syncthreads_and(is_last ? 1 : 0) != 0;
}

}  // namespace terrace::kernels::cuda
