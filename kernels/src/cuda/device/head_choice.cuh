// A selection's choice among the items of a KV head: its scratch memory, and the keys that rank the
// items, made of logits of the group's query heads.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

#include "device/choice.cuh"
#include "device/choice_items.cuh"
#include "selection.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::kernels::cuda {

/// Items that a block ranks.
struct Tile {
  unsigned begin;
  unsigned end;
};

/// Numbers that the tiles of a KV head leave for the kernels that follow.
struct TileNotes {
  float* sums;               ///< [group, tiles, 2]: the largest logit, and a sum of exponentials
  std::uint32_t* threshold;  ///< [2]: its key and ties
  std::uint32_t* before;  ///< [tiles, 2]: candidates above the threshold before the tile, and at it
  std::uint32_t* at_least;  ///< [tiles, digits]: the tile's candidates with at least this digit
};

/// A call: a choice among `items`, with logits in rows of scratch memory.
template <typename Items>
struct Choosing {
  SelectCommon common;
  Items items;
  unsigned tile_size = 0;
  unsigned tiles = 0;

  Choosing() = default;
  Choosing(const SelectCommon& selection, const Items& of)
      : common(selection),
        items(of),
        tile_size(static_cast<unsigned>(SelectionTiles::of(of.count()).size)),
        tiles(static_cast<unsigned>(SelectionTiles::of(of.count()).count)) {}

  [[nodiscard]] __device__ Tile tile(unsigned number) const {
    const unsigned begin = number * tile_size;
    const unsigned left = items.count() - begin;
    return {begin, begin + (left < tile_size ? left : tile_size)};
  }

  [[nodiscard]] __device__ float* row(unsigned head, unsigned row) const {
    const std::size_t rows = common.shape.group() + 1;
    return common.scratch + (head * rows + row) * logit_stride(items.count());
  }
  [[nodiscard]] __device__ TileNotes notes(unsigned head) const {
    const KvShape& shape = common.shape;
    float* const sums = row(static_cast<unsigned>(shape.kv_heads), 0) +
                        head * SelectionTiles::floats(shape, items.count());
    auto* const threshold = reinterpret_cast<std::uint32_t*>(sums + 2 * shape.group() * tiles);
    return {sums, threshold, threshold + 2, threshold + 2 + 2 * tiles};
  }
};

/// Turns a logit of a query head into the head's share of a weight.
struct HeadShare {
  float base;    ///< the largest logit, or 0 if no logit is above -inf
  float factor;  ///< 0 in this case, else one over the sum of exponentials

  [[nodiscard]] __device__ float of(float logit, GroupReduction reduction) const {
    if (reduction == GroupReduction::sum_logits) return factor == 0 ? 0.0F : limit(logit);
    return expf(limit(logit) - base) * factor;
  }
};

/// Returns the weight of an item once another query head has its share in it.
__device__ inline float join_shares(float weight, float share, GroupReduction reduction) {
  switch (reduction) {
    case GroupReduction::sum_softmax:
      return weight + share;
    case GroupReduction::max_softmax:
      return fmaxf(weight, share);
    case GroupReduction::sum_logits:
      return limit(weight + share);
  }
  return weight;
}

/// The choice of one KV head.
template <typename Items>
struct HeadChoice {
  const Choosing<Items>& call;
  unsigned head;
  unsigned candidates;
  unsigned wanted;

  __device__ HeadChoice(const Choosing<Items>& choosing, unsigned kv_head)
      : call(choosing), head(kv_head), candidates(choosing.items.candidates_of(kv_head)) {
    const auto most = static_cast<unsigned>(choosing.common.wanted(kv_head));
    wanted = most < candidates ? most : candidates;
  }

  [[nodiscard]] __device__ unsigned group() const {
    return static_cast<unsigned>(call.common.shape.group());
  }
  /// Whether there is nothing to rank.
  [[nodiscard]] __device__ bool takes_all() const { return wanted == candidates; }
  /// [items], in place of weights.
  [[nodiscard]] __device__ std::uint32_t* keys() const {
    return reinterpret_cast<std::uint32_t*>(call.row(head, group()));
  }
  /// Room for all items: logits are not read any more once there are keys.
  [[nodiscard]] __device__ std::uint32_t* list() const {
    return reinterpret_cast<std::uint32_t*>(call.row(head, 0));
  }

  /// Sets the shares of the group's query heads. Every thread of the block calls it.
  __device__ void find_shares(HeadShare* shares) const {
    const unsigned tiles = call.tiles;
    const float* const sums = call.notes(head).sums;
    const unsigned lane = threadIdx.x % 32;
    static_assert(SelectionTiles::most <= 32);
    for (unsigned q = threadIdx.x / 32; group() > 1 && q < group(); q += choose_threads / 32) {
      const bool there = lane < tiles;
      const float* const own = sums + 2 * (q * tiles + lane);
      const float of_tile = there ? own[0] : -INFINITY;
      const float maximum = warp_max(of_tile);
      const float base = maximum == -INFINITY ? 0.0F : maximum;
      const float sum = warp_sum(there ? own[1] * expf(of_tile - base) : 0.0F);
      if (lane == 0) shares[q] = {base, sum > 0 ? 1.0F / sum : 0.0F};
    }
    __syncthreads();
  }

  /// Finds the weights of every choose_threads-th item from `first` on. If the group has one query
  /// head, its logits themselves are ranked: softmax keeps order.
  template <unsigned count>
  __device__ void weigh(unsigned first, unsigned end, const HeadShare* shares,
                        float (&weights)[count]) const {
    const GroupReduction reduction = call.common.reduction;
    for (float& weight : weights) weight = 0;
    for (unsigned q = 0; q < group(); ++q) {
      const float* const logits = call.row(head, q);
      float own[count];
#pragma unroll
      for (unsigned k = 0; k < count; ++k) {
        const unsigned i = first + k * choose_threads;
        own[k] = i < end ? logits[i] : 0.0F;
      }
#pragma unroll
      for (unsigned k = 0; k < count; ++k) {
        weights[k] = group() == 1
                         ? own[k]
                         : join_shares(weights[k], shares[q].of(own[k], reduction), reduction);
      }
    }
  }
};

/// Candidates of items with keys above `key` are chosen, and the first `ties` with that key.
struct Threshold {
  std::uint32_t key;
  unsigned ties;
};

/// Adds what a tile's candidates have above a threshold to a list. Among items with one key the
/// lower come first, and the last item gives its lowest positions.
template <typename Items>
__device__ inline void write_chosen(const HeadChoice<Items>& choice, Tile tile, std::uint32_t key,
                                    PositionList list, BlockScan<choose_threads>::Shared& scan) {
  const Items& items = choice.call.items;
  const unsigned first = items.first_of(tile.begin);
  const unsigned behind = items.first_of(tile.end);
  const unsigned end = behind < choice.candidates ? behind : choice.candidates;
  if (first >= end) return;
  const std::uint32_t* const keys = choice.keys();
  const bool all = choice.takes_all();
  const auto standing = [&](unsigned i) {
    if (all) return Standing::in;
    const std::uint32_t own = keys[items.of(first + i)];
    if (own > key) return Standing::in;
    return own == key ? Standing::cut : Standing::out;
  };
  const auto position = [&](unsigned i) {
    return items.position(choice.call.common.candidates.begin, choice.head, first + i);
  };
  write_positions(list, end - first, standing, position, scan);
}

}  // namespace terrace::kernels::cuda
