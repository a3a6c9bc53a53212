// Causal attention of a prompt's chunk: see model_kernels.hpp.
//
// A block takes `tile_rows` query rows that share a KV head: positions, and the query heads of its
// group. Keys come in tiles to shared memory, then their values to the same place; each row keeps
// a running maximum and sum (online softmax), in the registers of the eight threads that share it.
#include <cuda_runtime.h>

#include <cmath>

#include "device/block_scan.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "model_kernels.hpp"

namespace terrace::engine::cuda {
namespace {

using kernels::cuda::all_lanes;
using kernels::cuda::launch_kernel;

constexpr unsigned row_threads = 8;  // that share a query row
constexpr unsigned tile_rows = 32;
constexpr unsigned threads = tile_rows * row_threads;

__device__ float maximum_of_row(float value) {
  for (int mask = row_threads / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, __shfl_xor_sync(all_lanes, value, mask));
  }
  return value;
}

__device__ float sum_of_row(float value) {
  for (int mask = row_threads / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(all_lanes, value, mask);
  }
  return value;
}

/// For heads of up to `dims_max` dimensions. With its shared memory a block fits 48 KiB.
template <unsigned dims_max>
struct Tile {
  static_assert(dims_max % (row_threads * 4) == 0);
  static constexpr unsigned keys = dims_max <= 128 ? 32 : 8;
  static constexpr unsigned stride = dims_max + 4;
  static constexpr unsigned keys_of_thread = keys / row_threads;
  static constexpr unsigned vectors_of_thread = dims_max / row_threads / 4;
  alignas(16) float queries[tile_rows][stride];
  alignas(16) float rows[keys][stride];  ///< keys, then values
  float weights[tile_rows][keys + 1];
};

/// A query row: which of the chunk's, and how many keys it sees.
struct QueryRow {
  bool there;
  std::size_t at;  ///< floats before its query and its output
  std::size_t visible;

  __device__ static QueryRow of(const KvShape& shape, const PrefillChunk& chunk, unsigned head,
                                std::size_t row) {
    const std::size_t group = shape.group();
    const std::size_t position = row / group;
    return {position < chunk.rows,
            (position * shape.query_heads + head * group + row % group) * shape.head_dim,
            chunk.first_position + position + 1};
  }
};

__device__ float4 vector_at(const float* shared) {
  return *reinterpret_cast<const float4*>(shared);
}

__device__ float4 scaled(const float4& vector, float factor) {
  return {vector.x * factor, vector.y * factor, vector.z * factor, vector.w * factor};
}

/// Copies keys (half 0) or values (half 1) of positions [first, first + keys) to shared memory;
/// what is not there is 0.
template <typename Elements, unsigned dims_max>
__device__ void load_rows(const KvShape& shape, const PrefillChunk& chunk, unsigned head,
                          std::size_t first, std::size_t end, unsigned half, Tile<dims_max>& tile) {
  const auto dims = static_cast<unsigned>(shape.head_dim);
  const auto* const kv = static_cast<const std::byte*>(chunk.kv);
  for (unsigned i = threadIdx.x; i < Tile<dims_max>::keys * dims_max; i += threads) {
    const unsigned key = i / dims_max;
    const unsigned dim = i % dims_max;
    const bool there = first + key < end && dim < dims;
    const std::size_t row = (head * chunk.capacity + first + key) * 2 + half;
    tile.rows[key][dim] = there ? Elements::load(kv + (row * dims + dim) * Elements::bytes) : 0.0F;
  }
}

/// The state of a query row's attention so far, shared out over the row's threads.
template <unsigned dims_max>
class RowAttention {
 public:
  using Memory = Tile<dims_max>;

  __device__ explicit RowAttention(Memory& tile) : tile_(tile) {}

  /// Weighs a tile's keys, of which the first `visible` are seen.
  __device__ void weigh(std::size_t visible) {
    float logits[Memory::keys_of_thread] = {};
#pragma unroll 4
    for (unsigned dim = 0; dim < dims_max; dim += 4) {
      const float4 q = vector_at(&tile_.queries[row()][dim]);
#pragma unroll
      for (unsigned k = 0; k < Memory::keys_of_thread; ++k) {
        const float4 key = vector_at(&tile_.rows[k * row_threads + lane()][dim]);
        logits[k] += q.x * key.x + q.y * key.y + q.z * key.z + q.w * key.w;
      }
    }
    float largest = maximum_;
#pragma unroll
    for (unsigned k = 0; k < Memory::keys_of_thread; ++k) {
      if (k * row_threads + lane() >= visible) logits[k] = -INFINITY;
      largest = fmaxf(largest, logits[k]);
    }
    largest = maximum_of_row(largest);
    // With all logits -inf any finite base gives weights 0.
    const float base = largest == -INFINITY ? 0.0F : largest;
    shrink_ = expf(maximum_ - base);
    float added = 0;
#pragma unroll
    for (unsigned k = 0; k < Memory::keys_of_thread; ++k) {
      const float weight = expf(logits[k] - base);
      tile_.weights[row()][k * row_threads + lane()] = weight;
      added += weight;
    }
    maximum_ = largest;
    sum_ = sum_ * shrink_ + sum_of_row(added);
  }

  /// Adds the values of the keys that were weighed.
  __device__ void add_values() {
#pragma unroll
    for (unsigned i = 0; i < Memory::vectors_of_thread; ++i) {
      output_[i] = scaled(output_[i], shrink_);
    }
    for (unsigned key = 0; key < Memory::keys; ++key) {
      const float weight = tile_.weights[row()][key];
#pragma unroll
      for (unsigned i = 0; i < Memory::vectors_of_thread; ++i) {
        const float4 value = vector_at(&tile_.rows[key][first_dim(i)]);
        output_[i].x += weight * value.x;
        output_[i].y += weight * value.y;
        output_[i].z += weight * value.z;
        output_[i].w += weight * value.w;
      }
    }
  }

  __device__ void write(float* out, unsigned dims) const {
    for (unsigned i = 0; i < Memory::vectors_of_thread; ++i) {
      const float4 result = scaled(output_[i], 1.0F / sum_);
      const float elements[4] = {result.x, result.y, result.z, result.w};
      for (unsigned e = 0; e < 4 && first_dim(i) + e < dims; ++e)
        out[first_dim(i) + e] = elements[e];
    }
  }

  __device__ static unsigned row() { return threadIdx.x / row_threads; }

 private:
  __device__ static unsigned lane() { return threadIdx.x % row_threads; }
  /// Returns the first of the dims of output vector `vector` of the thread.
  __device__ static unsigned first_dim(unsigned vector) {
    return (vector * row_threads + lane()) * 4;
  }

  Memory& tile_;
  float maximum_ = -INFINITY;
  float sum_ = 0;
  float shrink_ = 0;  ///< of what was summed before, as the maximum rises
  float4 output_[Memory::vectors_of_thread] = {};
};

/// blockIdx: tile of query rows, KV head.
template <typename Elements, unsigned dims_max>
__global__ void __launch_bounds__(threads)
    attend_tiles(KvShape shape, PrefillChunk chunk, float scale) {
  __shared__ Tile<dims_max> tile;
  const unsigned head = blockIdx.y;
  const auto dims = static_cast<unsigned>(shape.head_dim);
  const std::size_t first_row = static_cast<std::size_t>(blockIdx.x) * tile_rows;
  for (unsigned i = threadIdx.x; i < tile_rows * dims_max; i += threads) {
    const QueryRow row = QueryRow::of(shape, chunk, head, first_row + i / dims_max);
    const unsigned dim = i % dims_max;
    tile.queries[i / dims_max][dim] =
        row.there && dim < dims ? chunk.query[row.at + dim] * scale : 0.0F;
  }
  RowAttention<dims_max> attention(tile);
  const QueryRow row = QueryRow::of(shape, chunk, head, first_row + attention.row());
  const std::size_t last = QueryRow::of(shape, chunk, head, first_row + tile_rows - 1).visible;
  const std::size_t all = chunk.first_position + chunk.rows;
  const std::size_t end = last < all ? last : all;
  for (std::size_t first = 0; first < end; first += Tile<dims_max>::keys) {
    __syncthreads();  // queries are there; values before have been used
    load_rows<Elements>(shape, chunk, head, first, end, 0, tile);
    __syncthreads();
    attention.weigh(row.visible > first ? row.visible - first : 0);
    __syncthreads();  // weights are there; keys have been used
    load_rows<Elements>(shape, chunk, head, first, end, 1, tile);
    __syncthreads();
    attention.add_values();
  }
  if (row.there) attention.write(chunk.out + row.at, dims);
}

template <typename Elements, unsigned dims_max>
Status launch_tiles(const KvShape& shape, const PrefillChunk& chunk, const Launch& launch) {
  const std::size_t rows = chunk.rows * shape.group();
  const dim3 grid(static_cast<unsigned>((rows + tile_rows - 1) / tile_rows),
                  static_cast<unsigned>(shape.kv_heads));
  const float scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
  return launch_kernel(launch, {grid, threads}, "prefill_attention",
                       attend_tiles<Elements, dims_max>, shape, chunk, scale);
}

template <typename Elements>
Status launch_attention(const KvShape& shape, const PrefillChunk& chunk, const Launch& launch) {
  if (shape.head_dim <= 64) return launch_tiles<Elements, 64>(shape, chunk, launch);
  if (shape.head_dim <= 128) return launch_tiles<Elements, 128>(shape, chunk, launch);
  return launch_tiles<Elements, prefill_dims_max>(shape, chunk, launch);
}

}  // namespace

Status prefill_attention(const KvShape& shape, const PrefillChunk& chunk, const Launch& launch) {
  switch (shape.dtype) {
    case Dtype::f32:
      return launch_attention<kernels::cuda::F32Elements>(shape, chunk, launch);
    case Dtype::f16:
      return launch_attention<kernels::cuda::F16Elements>(shape, chunk, launch);
    case Dtype::bf16:
      break;
  }
  return launch_attention<kernels::cuda::Bf16Elements>(shape, chunk, launch);
}

}  // namespace terrace::engine::cuda
