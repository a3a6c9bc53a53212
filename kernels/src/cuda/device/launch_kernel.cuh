// Putting a kernel on a stream.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <utility>

#include "support/check.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::kernels::cuda {

/// Shared memory that every launch may have without asking.
inline constexpr std::size_t shared_bytes_max = std::size_t{48} << 10;

struct Grid {
  dim3 blocks;
  unsigned threads;
  std::size_t shared_bytes = 0;
};

/// Blocks that hold `count` threads, at most `most`: for kernels that walk on by the grid's size.
inline unsigned blocks_for(std::size_t count, unsigned threads, unsigned most) {
  const std::size_t blocks = (count + threads - 1) / threads;
  return blocks < most ? static_cast<unsigned>(blocks) : most;
}

template <typename... Parameters, typename... Arguments>
Status launch_kernel(const Launch& launch, const Grid& grid, const char* name,
                     void (*kernel)(Parameters...), Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = static_cast<cudaStream_t>(launch.stream);
  return terrace::cuda::check(
      cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

}  // namespace terrace::kernels::cuda
