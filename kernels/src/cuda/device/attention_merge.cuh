// Merging the pieces of a list that decode attention cut, in their order.
//
//   if (ends_last(ended, pieces)) PieceMerge<Elements>{op, memory, head, used, pieces}.merge();
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstddef>

#include "device/attention_piece.cuh"
#include "device/block_scan.cuh"
#include "terrace/core/ops.hpp"

namespace terrace::kernels::cuda {

/// Returns where a piece's results for a query head lie in the scratch memory: [piece, query head,
/// output | maximum | sum].
__device__ inline float* partial_of(const DecodeAttention& op, unsigned piece,
                                    unsigned query_head) {
  const std::size_t place = static_cast<std::size_t>(piece) * op.shape.query_heads + query_head;
  return op.scratch + place * (op.shape.head_dim + 2);
}

/// Merges the pieces of a list for some of its query heads. All threads of the block that ends last
/// take part; a thread takes two neighbouring elements of an output.
template <typename Elements>
struct PieceMerge {
  const DecodeAttention& op;
  const PieceMemory<Elements>& memory;  // of the block; nobody reads it any more
  unsigned first_head;
  unsigned used;
  unsigned pieces;

  // Factors and sums of as many pieces lie where the logits of a piece did.
  static constexpr unsigned at_once = attention_split_min / 2;
  static constexpr unsigned ahead = 16;  // pieces that a thread reads before it adds the first

  __device__ void merge() const {
    find_maxima();
    const unsigned pairs = used * pairs_of_head();
    for (unsigned begin = 0; begin < pairs; begin += attention_threads) {
      const unsigned pair = begin + threadIdx.x;
      float2 value{0, 0};
      float sum = 0;
      for (unsigned first = 0; first < pieces; first += at_once) {
        const unsigned count = pieces - first < at_once ? pieces - first : at_once;
        share_factors(first, count);
        if (pair < pairs) add(pair, first, count, value, sum);
      }
      if (pair >= pairs) continue;
      float* const output = op.output + static_cast<std::size_t>(first_head) * dims() + 2 * pair;
      output[0] = sum == 0 ? 0.0F : value.x / sum;
      output[1] = sum == 0 ? 0.0F : value.y / sum;
    }
  }

 private:
  [[nodiscard]] __device__ unsigned dims() const {
    return static_cast<unsigned>(op.shape.head_dim);
  }
  [[nodiscard]] __device__ unsigned pairs_of_head() const { return dims() / 2; }
  [[nodiscard]] __device__ float* factors(unsigned h) const {
    return memory.weights() + h * attention_split_min;
  }
  [[nodiscard]] __device__ float* sums(unsigned h) const { return factors(h) + at_once; }

  /// Returns two of a piece's results, which begin at multiples of two floats. Other blocks wrote
  /// them in this launch: the cache of this processor may have older bytes.
  [[nodiscard]] __device__ float2 read(unsigned piece, unsigned h, unsigned pair) const {
    return __ldcg(reinterpret_cast<const float2*>(partial_of(op, piece, first_head + h)) + pair);
  }
  /// Returns the maximum and the sum of a piece.
  [[nodiscard]] __device__ float2 read_sums(unsigned piece, unsigned h) const {
    return read(piece, h, pairs_of_head());
  }

  /// A warp takes a head.
  __device__ void find_maxima() const {
    const unsigned h = threadIdx.x / 32;
    if (h < used) {
      float maximum = -INFINITY;
      for (unsigned p = threadIdx.x % 32; p < pieces; p += 32) {
        maximum = fmaxf(maximum, read_sums(p, h).x);
      }
      maximum = warp_max(maximum);
      if (threadIdx.x % 32 == 0) memory.maxima()[h] = maximum;
    }
    __syncthreads();
  }

  __device__ void share_factors(unsigned first, unsigned count) const {
    __syncthreads();  // those before have been used
    for (unsigned i = threadIdx.x; i < used * count; i += attention_threads) {
      const unsigned h = i / count;
      const float2 own = read_sums(first + i % count, h);
      factors(h)[i % count] = expf(own.x - memory.maxima()[h]);
      sums(h)[i % count] = own.y;
    }
    __syncthreads();
  }

  __device__ void add(unsigned pair, unsigned first, unsigned count, float2& value,
                      float& sum) const {
    const unsigned h = pair / pairs_of_head();
    for (unsigned begin = 0; begin < count; begin += ahead) {
      float2 own[ahead];
#pragma unroll
      for (unsigned k = 0; k < ahead; ++k) {
        const unsigned p = begin + k < count ? begin + k : count - 1;
        own[k] = read(first + p, h, pair % pairs_of_head());
      }
#pragma unroll
      for (unsigned k = 0; k < ahead; ++k) {
        const unsigned p = begin + k;
        // A piece without weight (all logits -inf) has nothing to add; its factor may be NaN.
        if (p >= count || sums(h)[p] == 0) continue;
        value.x += own[k].x * factors(h)[p];
        value.y += own[k].y * factors(h)[p];
        sum += sums(h)[p] * factors(h)[p];
      }
    }
  }
};

}  // namespace terrace::kernels::cuda
