// The weights that query tokens gave to the rows of a tile: see terrace/kernels/cuda/ops.hpp.
//
// A block has some rows of one KV head, and takes all tokens one after the other, up to four query
// heads at a time: no other block adds to the sums of its rows, and no two of its threads to the
// same one. Logits are those of tile_attention, bit for bit.
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

// Rows of a block: as many as its warps have under way at once where a row takes 16 lanes, so that
// a tile of 2,048 rows makes 16 blocks a KV head.
constexpr unsigned block_rows = tile_split;

/// A block's rows, and its sums of them.
struct BlockRows {
  const TileWeights& op;
  unsigned kv_head;
  unsigned begin;

  /// Sums of the list that query head `query_head` is of, from row `begin` on.
  [[nodiscard]] __device__ float* sums(std::size_t query_head) const {
    const std::size_t list = op.weights.scope == ListScope::query_head ? query_head : kv_head;
    return op.weights.sums + list * op.weights.stride + op.first_column + begin;
  }
};

/// Adds the weights of up to `heads` query heads, whose logits are in memory.weights().
template <typename Elements, unsigned heads>
__device__ void add_weights(const BlockRows& rows, const TileHeads& block,
                            const PieceMemory<Elements>& memory) {
  const std::size_t dims = block.op.shape.head_dim;
  for (unsigned h = 0; h < block.used; ++h) {
    const float* const softmax = block.state(h) + dims;  // the maximum, and the sum of weights
    const float sum = softmax[1];
    if (sum == 0) continue;
    const unsigned seen = block.rows_seen(h, rows.begin, block_rows);
    float* const sums = rows.sums(block.query_head(h));
    for (unsigned i = threadIdx.x; i < seen; i += attention_threads) {
      sums[i] += expf(memory.weights()[h * memory.split + i] - softmax[0]) / sum;
    }
  }
}

/// blockIdx: rows, KV head, call.
template <typename Elements, unsigned heads, unsigned capacity>
__global__ void __launch_bounds__(attention_threads, attention_blocks_per_processor)
    weigh_tile(const Calls<TileWeights, capacity> __grid_constant__ calls) {
  const TileWeights& op = calls.of_block();
  const TileAttention& tile = op.tile;
  if (tile.tokens == 0) return;
  const auto dims = static_cast<unsigned>(tile.shape.head_dim);
  const auto group = static_cast<unsigned>(tile.shape.group());
  const BlockRows rows{op, blockIdx.y, blockIdx.x * block_rows};
  const TileHeads last{tile, rows.kv_head, static_cast<unsigned>(tile.tokens * group) - 1, 1};
  const unsigned count = last.rows_seen(0, rows.begin, block_rows);
  if (count == 0) return;
  const PieceMemory<Elements> memory(dims, heads, block_rows);
  bool is_one_whole = true;
  for (unsigned i = threadIdx.x; i < count; i += attention_threads) {
    memory.rows()[i] = row_place(tile.shape, tile.rows, rows.kv_head, rows.begin + i);
    is_one_whole = is_one_whole && is_whole<Elements>(memory.rows()[i], dims);
  }
  const bool whole = __syncthreads_and(is_one_whole ? 1 : 0) != 0;
  const auto end = static_cast<unsigned>(tile.tokens * group);
  for (unsigned n = 0; n < end; n += heads) {
    const TileHeads block{tile, rows.kv_head, n, end - n < heads ? end - n : heads};
    const unsigned seen = block.rows_seen(block.used - 1, rows.begin, block_rows);
    if (seen == 0) continue;  // of all threads alike
    share_queries_of<Elements, heads>(block, dims, memory.queries());
    __syncthreads();
    dot_rows<Elements, heads>(
        memory.queries(), dims, seen, whole, [&](unsigned i) { return memory.rows()[i]; },
        [&](unsigned h, unsigned i, float dot) {
          memory.weights()[h * memory.split + i] = tile.scale * dot;
        });
    __syncthreads();
    // The next queries may already be written: nothing here reads the old ones.
    add_weights<Elements, heads>(rows, block, memory);
  }
}

template <typename Elements, unsigned heads, unsigned capacity>
Status launch_heads(const Calls<TileWeights, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].tile.shape;
  const std::size_t most =
      calls.largest([](const TileWeights& call) { return call.tile.row_count; });
  if (most == 0) return {};
  const PieceMemory<Elements> memory(static_cast<unsigned>(shape.head_dim), heads, block_rows);
  if constexpr (heads > 1) {
    if (memory.bytes() > shared_bytes_max) return launch_heads<Elements, heads / 2>(calls, launch);
  }
  const dim3 grid = calls.grid(static_cast<unsigned>((most + block_rows - 1) / block_rows),
                               static_cast<unsigned>(shape.kv_heads));
  return launch_kernel(launch, {grid, attention_threads, memory.bytes()}, "tile_weights",
                       weigh_tile<Elements, heads, capacity>, calls);
}

}  // namespace

Status tile_weights(std::span<const TileWeights> batch, const Launch& launch) {
  return launch_calls(
      batch, [&]<unsigned capacity>(const Calls<TileWeights, capacity>& calls) -> Status {
        return with_elements(calls.each[0].tile.shape.dtype, [&](auto elements) {
          return launch_heads<decltype(elements), attention_heads_max>(calls, launch);
        });
      });
}

}  // namespace terrace::kernels::cuda
