// Attention of up to four query heads to one piece of rows, by one block: logits of all rows, a
// softmax over them, the weighted sum of their values.
//
//   const PieceMemory<Elements> memory(dims, heads, rows);
//   ...                                         // rows() and queries() are filled
//   const bool whole = __syncthreads_and(...);  // whether all rows are
//   dot_rows<Elements, heads>(...);             // writes logits to weights(); a barrier
//   weigh(memory, count);                       // a barrier
//   sum_values<Elements, heads>(memory, {dims, count, used, whole}, sees, write);
//
// Which query heads share a block, and where rows lie, changes no sum.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>

#include "device/block_scan.cuh"
#include "device/dot_rows.cuh"
#include "terrace/core/ops.hpp"

// A block's dynamic shared memory, under the one name that all kernels declare it by.
extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {

inline constexpr unsigned attention_threads = 256;  // of a block
inline constexpr unsigned attention_warps = attention_threads / 32;
inline constexpr unsigned attention_heads_max = 4;
// Blocks wait for memory: while one waits, another one works. Some registers are spilled for that.
inline constexpr unsigned attention_blocks_per_processor = 2;

/// The contents of a block's shared memory, for `heads` query heads and pieces of `split` rows.
template <typename Elements>
struct PieceMemory {
  unsigned padded;  ///< floats of a query
  unsigned slab;    ///< dims that the lanes of a warp cover at once
  unsigned heads;
  unsigned split;

  __host__ __device__ PieceMemory(unsigned dims, unsigned head_count, unsigned rows)
      : padded(padded_dims<Elements>(dims)),
        slab(padded < 32 * Elements::per_vector ? padded : 32 * Elements::per_vector),
        heads(head_count),
        split(rows) {}

  [[nodiscard]] __host__ __device__ std::size_t bytes() const {
    return split * sizeof(std::byte*) +
           sizeof(float) * heads * (padded + split + attention_warps * slab + 2);
  }
  __device__ const std::byte** rows() const {
    return reinterpret_cast<const std::byte**>(dynamic_shared_memory);
  }
  __device__ float* queries() const { return reinterpret_cast<float*>(rows() + split); }
  __device__ float* weights() const { return queries() + heads * padded; }  // [heads, split]
  __device__ float* partials() const { return weights() + heads * split; }  // [warps, heads, slab]
  __device__ float* maxima() const {
    return partials() + attention_warps * heads * slab;
  }  // [heads]
  __device__ float* sums() const { return maxima() + heads; }  // [heads]
};

/// Turns a head's logits into weights exp(logit - maximum). A warp takes a head.
template <typename Elements>
__device__ inline void weigh(const PieceMemory<Elements>& memory, unsigned count) {
  const unsigned lane = threadIdx.x % 32;
  for (unsigned h = threadIdx.x / 32; h < memory.heads; h += attention_warps) {
    float* const weights = memory.weights() + h * memory.split;
    float maximum = -INFINITY;
    for (unsigned i = lane; i < count; i += 32) maximum = fmaxf(maximum, weights[i]);
    maximum = warp_max(maximum);
    // If all logits are -inf, any finite base gives weights 0.
    const float base = maximum == -INFINITY ? 0.0F : maximum;
    float sum = 0;
    for (unsigned i = lane; i < count; i += 32) {
      const float weight = expf(weights[i] - base);
      weights[i] = weight;
      sum += weight;
    }
    sum = warp_sum(sum);
    if (lane == 0) {
      memory.maxima()[h] = maximum;
      memory.sums()[h] = sum;
    }
  }
}

/// The rows of a piece whose values are summed.
struct ValueRows {
  unsigned dims;
  unsigned count;
  unsigned used;  ///< heads that are written
  bool whole;     ///< all rows are: the same for all threads
};

/// Adds a row's values to the sums of the heads that see it.
template <typename Elements, unsigned heads, typename Sees>
__device__ inline void add_row(const PieceMemory<Elements>& memory, unsigned i, const float* values,
                               Sees sees, float (&sums)[heads][Elements::per_vector]) {
#pragma unroll
  for (unsigned h = 0; h < heads; ++h) {
    const float weight = memory.weights()[h * memory.split + i];
#pragma unroll
    for (unsigned v = 0; v < Elements::per_vector; ++v) {
      if (sees(h, i)) sums[h][v] += weight * values[v];
    }
  }
}

/// Sums weight * value over a warp's rows, from element `mine` of the values on. Rows that are
/// whole are read some at a time: nothing stands between the loads.
template <typename Elements, unsigned heads, typename Sees>
__device__ inline void sum_own_values(const PieceMemory<Elements>& memory, const LaneSplit& lanes,
                                      const ValueRows& rows, unsigned mine, Sees sees,
                                      float (&sums)[heads][Elements::per_vector]) {
  constexpr unsigned width = Elements::per_vector;
  const unsigned step = attention_warps * lanes.rows;
  const std::size_t offset = static_cast<std::size_t>(rows.dims + mine) * Elements::bytes;
  unsigned i = threadIdx.x / 32 * lanes.rows + lanes.row;
  float values[width];
  if (rows.whole) {
    for (; i + (rows_at_once - 1) * step < rows.count; i += rows_at_once * step) {
      uint4 raw[rows_at_once];
#pragma unroll
      for (unsigned r = 0; r < rows_at_once; ++r) {
        raw[r] = load_whole<Elements>(memory.rows()[i + r * step] + offset);
      }
#pragma unroll
      for (unsigned r = 0; r < rows_at_once; ++r) {
        Elements::widen(raw[r], values);
        add_row<Elements, heads>(memory, i + r * step, values, sees, sums);
      }
    }
  }
  for (; i < rows.count; i += step) {
    load_vector<Elements>(memory.rows()[i] + offset, rows.dims - mine, values);
    add_row<Elements, heads>(memory, i, values, sees, sums);
  }
}

/// Sums weight * value over a warp's rows for the dims from `dim` on that a lane holds, and leaves
/// the warp's sums in shared memory. Head h takes row i if sees(h, i).
template <typename Elements, unsigned heads, typename Sees>
__device__ inline void add_values(const PieceMemory<Elements>& memory, const LaneSplit& lanes,
                                  const ValueRows& rows, unsigned dim, Sees sees) {
  constexpr unsigned width = Elements::per_vector;
  const unsigned warp = threadIdx.x / 32;
  const unsigned mine = dim + lanes.lane * width;
  float sums[heads][width] = {};
  if (mine < rows.dims) {
    sum_own_values<Elements, heads>(memory, lanes, rows, mine, sees, sums);
  }
#pragma unroll
  for (unsigned h = 0; h < heads; ++h) {
#pragma unroll
    for (unsigned v = 0; v < width; ++v) {
      for (unsigned mask = lanes.lanes; mask < 32; mask *= 2) {
        sums[h][v] += __shfl_xor_sync(all_lanes, sums[h][v], static_cast<int>(mask));
      }
      const unsigned at = lanes.lane * width + v;
      if (lanes.row == 0 && at < memory.slab) {
        memory.partials()[(warp * heads + h) * memory.slab + at] = sums[h][v];
      }
    }
  }
}

/// Sums weight * value over a piece's rows, head h taking row i if sees(h, i), and calls
/// write(h, dim, sum) on one thread for each dimension of the first `rows.used` heads. Every thread
/// of the block calls it.
template <typename Elements, unsigned heads, typename Sees, typename Write>
__device__ inline void sum_values(const PieceMemory<Elements>& memory, const ValueRows& rows,
                                  Sees sees, Write write) {
  const unsigned dims = rows.dims;
  const LaneSplit lanes = LaneSplit::of<Elements>(dims);
  for (unsigned dim = 0; dim < dims; dim += memory.slab) {
    add_values<Elements, heads>(memory, lanes, rows, dim, sees);
    __syncthreads();
    const unsigned width = dims - dim < memory.slab ? dims - dim : memory.slab;
    for (unsigned i = threadIdx.x; i < rows.used * width; i += attention_threads) {
      const unsigned h = i / width;
      float sum = 0;
      for (unsigned w = 0; w < attention_warps; ++w) {
        sum += memory.partials()[(w * heads + h) * memory.slab + i % width];
      }
      write(h, dim + i % width, sum);
    }
    __syncthreads();
  }
}

}  // namespace terrace::kernels::cuda
