// Dot products of a few queries with many rows: lanes of a warp take 16 bytes of a row each, so
// that a row is read at once and whole; several rows a lane are under way together.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "device/block_scan.cuh"
#include "device/elements.cuh"

namespace terrace::kernels::cuda {

inline constexpr unsigned rows_at_once = 8;  // of a lane

/// How the lanes of a warp share rows of `dims` elements.
struct LaneSplit {
  unsigned lanes;  ///< of a row: a power of two
  unsigned lane;   ///< the caller's, within a row
  unsigned row;    ///< the caller's, within the rows of a warp
  unsigned rows;   ///< of a warp at once

  template <typename Elements>
  __device__ static LaneSplit of(unsigned dims) {
    const unsigned vectors = (dims + Elements::per_vector - 1) / Elements::per_vector;
    unsigned lanes = 1;
    while (lanes < vectors && lanes < 32) lanes *= 2;
    const unsigned lane = threadIdx.x % 32;
    return {lanes, lane % lanes, lane / lanes, 32 / lanes};
  }
};

/// Rounds dims up to whole vectors: how far queries lie apart in shared memory.
template <typename Elements>
__host__ __device__ constexpr unsigned padded_dims(unsigned dims) {
  return (dims + Elements::per_vector - 1) / Elements::per_vector * Elements::per_vector;
}

/// Copies `count` queries of `dims` floats times `scale` to shared memory, the rest of the `room`
/// queries and the padding being 0. The caller adds a barrier after the call.
template <typename Elements>
__device__ inline void share_queries(const float* query, unsigned count, unsigned room,
                                     unsigned dims, float scale, float* shared) {
  const unsigned padded = padded_dims<Elements>(dims);
  for (unsigned i = threadIdx.x; i < room * padded; i += blockDim.x) {
    const unsigned q = i / padded;
    const unsigned dim = i % padded;
    shared[i] = q < count && dim < dims ? query[q * dims + dim] * scale : 0.0F;
  }
}

/// Adds products of a lane's rows and of queries, of 16 bytes of each row from element `dim` on;
/// `factors` are the first query's elements from there on, those of the next `padded` floats on.
///
/// If the rows are whole, nothing stands between the loads: all of them are under way together, and
/// their elements are widened as they are used.
template <typename Elements, unsigned queries, bool whole>
__device__ inline void add_products(const std::byte* const* rows, const float* factors,
                                    unsigned padded, unsigned dim, unsigned dims,
                                    float (&sums)[rows_at_once][queries]) {
  if constexpr (whole) {
    uint4 vectors[rows_at_once];
#pragma unroll
    for (unsigned r = 0; r < rows_at_once; ++r) {
      vectors[r] = load_whole<Elements>(rows[r] + dim * Elements::bytes);
    }
#pragma unroll
    for (unsigned i = 0; i < Elements::per_vector; ++i) {
#pragma unroll
      for (unsigned r = 0; r < rows_at_once; ++r) {
        const float element = Elements::element(vectors[r], i);
#pragma unroll
        for (unsigned q = 0; q < queries; ++q) sums[r][q] += element * factors[q * padded + i];
      }
    }
  } else {
#pragma unroll
    for (unsigned r = 0; r < rows_at_once; ++r) {
      float elements[Elements::per_vector];
      load_vector<Elements>(rows[r] + dim * Elements::bytes, dims - dim, elements);
#pragma unroll
      for (unsigned i = 0; i < Elements::per_vector; ++i) {
#pragma unroll
        for (unsigned q = 0; q < queries; ++q) sums[r][q] += elements[i] * factors[q * padded + i];
      }
    }
  }
}

/// dot_rows(), once it is known whether the rows are whole.
template <typename Elements, unsigned queries, bool whole, typename Row, typename Write>
__device__ inline void dot_rows_that_are(const float* shared_queries, unsigned dims, unsigned count,
                                         Row row, Write write) {
  const LaneSplit split = LaneSplit::of<Elements>(dims);
  const unsigned padded = padded_dims<Elements>(dims);
  const unsigned step = split.rows * rows_at_once;
  for (unsigned first = threadIdx.x / 32 * step; first < count; first += blockDim.x / 32 * step) {
    const std::byte* rows[rows_at_once];
    float sums[rows_at_once][queries];
#pragma unroll
    for (unsigned r = 0; r < rows_at_once; ++r) {
      const unsigned i = first + r * split.rows + split.row;
      rows[r] = row(i < count ? i : count - 1);
#pragma unroll
      for (unsigned q = 0; q < queries; ++q) sums[r][q] = 0;
    }
    for (unsigned dim = split.lane * Elements::per_vector; dim < dims;
         dim += split.lanes * Elements::per_vector) {
      add_products<Elements, queries, whole>(rows, shared_queries + dim, padded, dim, dims, sums);
    }
#pragma unroll
    for (unsigned r = 0; r < rows_at_once; ++r) {
      const unsigned i = first + r * split.rows + split.row;
#pragma unroll
      for (unsigned q = 0; q < queries; ++q) {
        float sum = sums[r][q];
        for (unsigned mask = split.lanes / 2; mask > 0; mask /= 2) {
          sum += __shfl_xor_sync(all_lanes, sum, static_cast<int>(mask));
        }
        if (split.lane == 0 && i < count) write(q, i, sum);
      }
    }
  }
}

/// Calls write(q, i, dot) on one thread for each query and row i of [0, count); row(i) is its
/// address. `whole`: all rows are whole, which is the same for all threads. Every thread of the
/// block calls it. The order of a sum depends on `dims` alone.
template <typename Elements, unsigned queries, typename Row, typename Write>
__device__ inline void dot_rows(const float* shared_queries, unsigned dims, unsigned count,
                                bool whole, Row row, Write write) {
  if (whole) {
    dot_rows_that_are<Elements, queries, true>(shared_queries, dims, count, row, write);
  } else {
    dot_rows_that_are<Elements, queries, false>(shared_queries, dims, count, row, write);
  }
}

/// Waits for all threads of the block. Returns whether all of `count` rows are whole.
template <typename Elements, typename Row>
__device__ inline bool sync_and_find_whole(unsigned dims, unsigned count, Row row) {
  bool whole = true;
  for (unsigned i = threadIdx.x; i < count; i += blockDim.x) {
    whole = whole && is_whole<Elements>(row(i), dims);
  }
  return __syncthreads_and(whole ? 1 : 0) != 0;
}

}  // namespace terrace::kernels::cuda
