// Attention over a tile of rows: see terrace/kernels/cuda/ops.hpp.
//
// A block has up to four query heads of one KV head's group, of one token or several, and takes
// piece after piece of the tile. Between pieces the state of its heads lies where the op has it: no
// other block touches it.
#include <cuda_runtime.h>

#include <cmath>

#include "device/attention_piece.cuh"
#include "device/calls.cuh"
#include "device/elements.cuh"
#include "device/launch_kernel.cuh"
#include "device/row_place.cuh"
#include "device/tile_heads.cuh"
#include "terrace/kernels/cuda/ops.hpp"

namespace terrace::kernels::cuda {
namespace {

__device__ void begin_states(const TileHeads& block, unsigned dims) {
  for (unsigned i = threadIdx.x; i < block.used * (dims + 2); i += attention_threads) {
    const unsigned at = i % (dims + 2);
    block.state(i / (dims + 2))[at] = at == dims ? -INFINITY : 0.0F;
  }
  __syncthreads();
}

/// By what a piece and the state it is merged into are multiplied.
struct MergeFactors {
  float state;
  float piece;
};

/// Merges a piece's maximum and sum of weights into a state.
__device__ MergeFactors merge_sums(float piece_maximum, float piece_sum, float* state,
                                   unsigned dims) {
  // A piece without weight (all logits -inf) has nothing to add; its difference may be NaN.
  if (piece_sum == 0) return {1.0F, 0.0F};
  const float maximum = fmaxf(state[dims], piece_maximum);
  const MergeFactors factors{expf(state[dims] - maximum), expf(piece_maximum - maximum)};
  state[dims] = maximum;
  state[dims + 1] = fmaf(piece_sum, factors.piece, state[dims + 1] * factors.state);
  return factors;
}

/// Attends to `count` rows from row `begin` on.
template <typename Elements, unsigned heads>
__device__ void attend_rows(const TileHeads& block, const PieceMemory<Elements>& memory,
                            unsigned dims, unsigned begin, unsigned count) {
  unsigned seen[heads];
#pragma unroll
  for (unsigned h = 0; h < heads; ++h) seen[h] = block.rows_seen(h, begin, tile_split);
  bool is_one_whole = true;
  for (unsigned i = threadIdx.x; i < count; i += attention_threads) {
    memory.rows()[i] = row_place(block.op.shape, block.op.rows, block.kv_head, begin + i);
    is_one_whole = is_one_whole && is_whole<Elements>(memory.rows()[i], dims);
  }
  const bool whole = __syncthreads_and(is_one_whole ? 1 : 0) != 0;
  dot_rows<Elements, heads>(
      memory.queries(), dims, count, whole, [&](unsigned i) { return memory.rows()[i]; },
      [&](unsigned h, unsigned i, float dot) {
        memory.weights()[h * memory.split + i] = i < seen[h] ? block.op.scale * dot : -INFINITY;
      });
  __syncthreads();
  weigh(memory, count);
  __syncthreads();
  // In place of a head's maximum and sum: its factors.
  if (threadIdx.x < block.used) {
    float& maximum = memory.maxima()[threadIdx.x];
    float& sum = memory.sums()[threadIdx.x];
    const MergeFactors factors = merge_sums(maximum, sum, block.state(threadIdx.x), dims);
    maximum = factors.state;
    sum = factors.piece;
  }
  sum_values<Elements, heads>(
      memory, {dims, count, block.used, whole}, [&](unsigned h, unsigned i) { return i < seen[h]; },
      [&](unsigned h, unsigned dim, float value) {
        float& sum = block.state(h)[dim];
        // Fused by name: a compiler may fuse either product, and a head's bits must not depend on
        // how many heads a block has.
        sum = fmaf(value, memory.sums()[h], sum * memory.maxima()[h]);
      });
}

/// blockIdx: query heads, KV head, call.
template <typename Elements, unsigned heads, unsigned capacity>
__global__ void __launch_bounds__(attention_threads, attention_blocks_per_processor)
    attend_tile(const Calls<TileAttention, capacity> __grid_constant__ calls) {
  const TileAttention& op = calls.of_block();
  const auto dims = static_cast<unsigned>(op.shape.head_dim);
  const auto all = static_cast<unsigned>(op.tokens * op.shape.group());
  const unsigned first = blockIdx.x * heads;
  if (first >= all) return;
  const TileHeads block{op, blockIdx.y, first, all - first < heads ? all - first : heads};
  const PieceMemory<Elements> memory(dims, heads, tile_split);
  if (op.first) begin_states(block, dims);
  share_queries_of<Elements, heads>(block, dims, memory.queries());
  // The last head's token sees most.
  const std::size_t rows = op.rows_seen(block.token(block.used - 1));
  for (unsigned begin = 0; begin < rows; begin += tile_split) {
    const unsigned count = block.rows_seen(block.used - 1, begin, tile_split);
    attend_rows<Elements, heads>(block, memory, dims, begin, count);
  }
  if (op.output == nullptr) return;
  for (unsigned i = threadIdx.x; i < block.used * dims; i += attention_threads) {
    const float* const state = block.state(i / dims);
    const float sum = state[dims + 1];
    block.output(i / dims)[i % dims] = sum == 0 ? 0.0F : state[i % dims] / sum;
  }
}

template <typename Elements, unsigned heads, unsigned capacity>
Status launch_heads(const Calls<TileAttention, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].shape;
  const std::size_t most = calls.largest([](const TileAttention& call) { return call.tokens; });
  const std::size_t head_count = most * shape.group();
  if (head_count == 0) return {};
  const PieceMemory<Elements> memory(static_cast<unsigned>(shape.head_dim), heads, tile_split);
  if constexpr (heads > 1) {
    const bool fewer = head_count <= heads / 2 || memory.bytes() > shared_bytes_max;
    if (fewer) return launch_heads<Elements, heads / 2>(calls, launch);
  }
  const dim3 grid = calls.grid(static_cast<unsigned>((head_count + heads - 1) / heads),
                               static_cast<unsigned>(shape.kv_heads));
  return launch_kernel(launch, {grid, attention_threads, memory.bytes()}, "tile_attention",
                       attend_tile<Elements, heads, capacity>, calls);
}

}  // namespace

Status tile_attention(std::span<const TileAttention> batch, const Launch& launch) {
  return launch_calls(
      batch, [&]<unsigned capacity>(const Calls<TileAttention, capacity>& calls) -> Status {
        return with_elements(calls.each[0].shape.dtype, [&](auto elements) {
          return launch_heads<decltype(elements), attention_heads_max>(calls, launch);
        });
      });
}

}  // namespace terrace::kernels::cuda
