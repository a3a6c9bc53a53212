// Queries times the matrix of their KV head: see terrace/kernels/cuda/ops.hpp.
#include <cuda_runtime.h>

#include "device/calls.cuh"
#include "device/launch_kernel.cuh"
#include "terrace/kernels/cuda/ops.hpp"

namespace terrace::kernels::cuda {
namespace {

constexpr unsigned threads = 128;

/// blockIdx: tile of elements, query head, call. Neighbours read neighbours of a row of the matrix.
template <unsigned capacity>
__global__ void __launch_bounds__(threads)
    map_elements(const Calls<MapQueries, capacity> __grid_constant__ calls) {
  const MapQueries& op = calls.of_block();
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const std::size_t head = blockIdx.y / op.shape.group();
  const unsigned element = blockIdx.x * threads + threadIdx.x;
  if (element >= dims) return;
  const float* const query = op.query + static_cast<std::size_t>(blockIdx.y) * dims;
  const float* const map = op.maps + head * dims * dims;
  float sum = 0;
#pragma unroll 8
  for (unsigned i = 0; i < dims; ++i) sum += query[i] * map[i * dims + element];
  op.mapped[static_cast<std::size_t>(blockIdx.y) * dims + element] = sum;
}

}  // namespace

Status map_queries(std::span<const MapQueries> batch, const Launch& launch) {
  return launch_calls(batch, [&]<unsigned capacity>(const Calls<MapQueries, capacity>& calls) {
    const KvShape& shape = calls.each[0].shape;
    const dim3 grid = calls.grid(blocks_for(shape.head_dim, threads, 0x7fffffffU),
                                 static_cast<unsigned>(shape.query_heads));
    return launch_kernel(launch, {grid, threads}, "map_queries", map_elements<capacity>, calls);
  });
}

}  // namespace terrace::kernels::cuda
