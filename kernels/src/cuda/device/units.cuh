// Copies cut into units of 16 bytes, one a thread: neighbours in a row are neighbours in a warp.
#pragma once

#include <cstddef>

#include "device/elements.cuh"

namespace terrace::kernels::cuda {

inline constexpr unsigned unit_bytes = sizeof(uint4);

__host__ __device__ constexpr unsigned units_of(std::size_t bytes) {
  return static_cast<unsigned>((bytes + unit_bytes - 1) / unit_bytes);
}

/// A unit on its way. A unit that is not aligned, or not whole, travels byte by byte.
struct Unit {
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  unsigned bytes = 0;
  bool aligned = false;
  uint4 content = {};

  __device__ void aim(std::byte* to, const std::byte* from, unsigned count) {
    target = to;
    source = from;
    bytes = count;
    aligned = count == unit_bytes && is_aligned(to, unit_bytes) && is_aligned(from, unit_bytes);
  }
  __device__ void read() {
    if (aligned) content = *reinterpret_cast<const uint4*>(source);
  }
  __device__ void write() const {
    if (aligned) {
      *reinterpret_cast<uint4*>(target) = content;
      return;
    }
    for (unsigned i = 0; i < bytes; ++i) target[i] = source[i];
  }
};

/// Bytes of unit `unit` of a piece of `bytes`.
__device__ inline unsigned unit_size(std::size_t bytes, unsigned unit) {
  const std::size_t left = bytes - static_cast<std::size_t>(unit) * unit_bytes;
  return left < unit_bytes ? static_cast<unsigned>(left) : unit_bytes;
}

/// The calling thread among all of the grid.
__device__ inline std::size_t grid_thread() {
  return static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::size_t grid_threads() {
  return static_cast<std::size_t>(gridDim.x) * blockDim.x;
}

}  // namespace terrace::kernels::cuda
