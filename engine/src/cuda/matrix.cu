// Products with weight matrices, f32 on the cores for f32: see model_kernels.hpp.
//
// For many rows, a block makes a tile of the target: slices of both operands lie in shared memory,
// transposed so that a thread reads its rows and its outputs as vectors. For one row, a warp makes
// an output: each weight is read once.
#include <cuda_runtime.h>

#include "device/block_scan.cuh"
#include "device/launch_kernel.cuh"
#include "model_kernels.hpp"

namespace terrace::engine::cuda {
namespace {

using kernels::cuda::launch_kernel;
using kernels::cuda::warp_sum;

constexpr unsigned threads = 256;
constexpr unsigned tile = 64;   // rows and outputs of a block
constexpr unsigned slice = 16;  // inputs in shared memory
constexpr unsigned side = 4;    // rows and outputs of a thread
constexpr unsigned padded = tile + 4;
static_assert(threads == (tile / side) * (tile / side));

/// Copies inputs [first, first + slice) of up to `tile` rows to shared memory, [slice][padded];
/// missing inputs are 0.
__device__ void load_slice(const float* matrix, std::size_t rows, std::size_t inputs,
                           std::size_t first, float (*shared)[padded]) {
  for (unsigned i = threadIdx.x; i < tile * slice; i += threads) {
    const unsigned row = i / slice;
    const unsigned input = i % slice;
    const bool there = row < rows && first + input < inputs;
    shared[input][row] = there ? matrix[row * inputs + first + input] : 0.0F;
  }
}

/// blockIdx: tile of outputs, tile of rows.
__global__ void __launch_bounds__(threads) multiply_tiles(MatrixProduct product) {
  __shared__ float sources[slice][padded];
  __shared__ float weights[slice][padded];
  const std::size_t first_row = static_cast<std::size_t>(blockIdx.y) * tile;
  const std::size_t first_output = static_cast<std::size_t>(blockIdx.x) * tile;
  const unsigned row = threadIdx.x / (tile / side) * side;
  const unsigned output = threadIdx.x % (tile / side) * side;
  float sums[side][side] = {};
  for (std::size_t first = 0; first < product.inputs; first += slice) {
    load_slice(product.source + first_row * product.inputs, product.rows - first_row,
               product.inputs, first, sources);
    load_slice(product.weight + first_output * product.inputs, product.outputs - first_output,
               product.inputs, first, weights);
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < slice; ++k) {
#pragma unroll
      for (unsigned r = 0; r < side; ++r) {
#pragma unroll
        for (unsigned o = 0; o < side; ++o) {
          sums[r][o] += sources[k][row + r] * weights[k][output + o];
        }
      }
    }
    __syncthreads();
  }
  for (unsigned r = 0; r < side && first_row + row + r < product.rows; ++r) {
    for (unsigned o = 0; o < side && first_output + output + o < product.outputs; ++o) {
      float& target =
          product.target[(first_row + row + r) * product.outputs + first_output + output + o];
      target = product.accumulate ? target + sums[r][o] : sums[r][o];
    }
  }
}

/// The product with one row, one output a warp.
__global__ void __launch_bounds__(threads) multiply_vector(MatrixProduct product) {
  const unsigned lane = threadIdx.x % 32;
  const std::size_t output =
      static_cast<std::size_t>(blockIdx.x) * (threads / 32) + threadIdx.x / 32;
  if (output >= product.outputs) return;
  const float* const weights = product.weight + output * product.inputs;
  float sum = 0;
#pragma unroll 4
  for (std::size_t i = lane; i < product.inputs; i += 32) sum += product.source[i] * weights[i];
  sum = warp_sum(sum);
  if (lane == 0) {
    float& target = product.target[output];
    target = product.accumulate ? target + sum : sum;
  }
}

unsigned parts(std::size_t count, unsigned size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace

Status multiply(const MatrixProduct& product, const Launch& launch) {
  if (product.rows == 1) {
    return launch_kernel(launch, {parts(product.outputs, threads / 32), threads}, "multiply",
                         multiply_vector, product);
  }
  const dim3 grid(parts(product.outputs, tile), parts(product.rows, tile));
  return launch_kernel(launch, {grid, threads}, "multiply", multiply_tiles, product);
}

}  // namespace terrace::engine::cuda
