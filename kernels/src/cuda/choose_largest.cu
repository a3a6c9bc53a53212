// From logits to the positions chosen: a softmax of each query head, a weight for each candidate of
// a KV head, or each page of them, and the largest weights, found digit by digit without sorting.
//
// A block chooses among few candidates alone. Many are ranked tile by tile: blocks make the keys of
// a tile each and count its candidates by the first digit of their keys; the block of a KV head
// that ends last adds up these counts, goes on with the keys of the digit that decides, and tells
// each tile at which place its positions begin. The tiles then write them side by side.
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>

#include "device/calls.cuh"
#include "device/digit_search.cuh"
#include "device/last_block.cuh"
#include "device/launch_kernel.cuh"
#include "rests.hpp"
#include "selection.hpp"

extern __shared__ uint4 dynamic_shared_memory[];

namespace terrace::kernels::cuda {
namespace {

/// Items that a block of its own chooses among no later than tiles do, which take a launch more.
/// It is an estimate, by what a block reads in a round.
constexpr unsigned one_block_items = 8 * choose_threads;

/// Sets the logits of a tile's held candidates in a row to NaN.
template <typename Items>
__device__ void leave_out_held(const Choosing<Items>& call, unsigned head, Tile tile, float* row) {
  const SelectCommon& common = call.common;
  if (!Items::may_be_held || common.held.positions == nullptr) return;
  const std::size_t begin = common.candidates.begin;
  const TokenRange held = common.held.among({begin + tile.begin, begin + tile.end}, head);
  for (std::size_t i = held.begin + threadIdx.x; i < held.end; i += choose_threads) {
    row[common.held.positions[i] - begin] = NAN;
  }
  __syncthreads();
}

/// Finds what a tile adds to the softmax of a query head. blockIdx: tile, query head, call.
template <typename Items, unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    sum_tiles(const Calls<Choosing<Items>, capacity> __grid_constant__ calls) {
  __shared__ float shared[choose_threads / 32];
  const Choosing<Items>& call = calls.of_block();
  if (blockIdx.x >= call.tiles || candidates_to_score(call.common) == 0) return;
  const auto group = static_cast<unsigned>(call.common.shape.group());
  const unsigned head = blockIdx.y / group;
  const unsigned q = blockIdx.y % group;
  const Tile tile = call.tile(blockIdx.x);
  float* const row = call.row(head, q);
  leave_out_held(call, head, tile, row);
  const auto logit = [&](unsigned i) { return row[tile.begin + i]; };
  const unsigned count = tile.end - tile.begin;
  float maximum = -INFINITY;
  read_ahead<choose_threads>(count, logit,
                             [&](unsigned, float own) { maximum = fmaxf(maximum, limit(own)); });
  maximum = reduce_block(maximum, Maximum(), shared);
  const float base = maximum == -INFINITY ? 0.0F : maximum;
  float sum = 0;
  read_ahead<choose_threads>(count, logit,
                             [&](unsigned, float own) { sum += expf(limit(own) - base); });
  sum = reduce_block(sum, Sum(), shared);
  if (threadIdx.x != 0) return;
  float* const sums = call.notes(head).sums + 2 * (q * call.tiles + blockIdx.x);
  sums[0] = maximum;
  sums[1] = sum;
}

__device__ HeadShare* shared_shares() {
  return reinterpret_cast<HeadShare*>(dynamic_shared_memory);
}

/// Chooses among all items of a head. blockIdx: KV head; z: call.
template <typename Items, unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    choose(const Calls<Choosing<Items>, capacity> __grid_constant__ calls) {
  __shared__ DigitMemory memory;
  const Choosing<Items>& call = calls.of_block();
  const HeadChoice<Items> choice(call, blockIdx.x);
  if (threadIdx.x == 0) call.common.id_count[choice.head] = choice.wanted;
  if (choice.wanted == 0) return;
  const Tile all{0, call.items.count()};
  Threshold threshold{};
  if (!choice.takes_all()) {
    DigitCounts counts(memory);
    choice.find_shares(shared_shares());
    make_keys(choice, all, shared_shares(), counts);
    counts.add_up();
    threshold = find_threshold(choice, memory);
  }
  std::uint32_t* const ids = call.common.ids + choice.head * call.common.id_stride;
  write_chosen(choice, all, threshold.key, {ids, threshold.ties}, memory.scan);
}

/// The first kernel of tiles for one KV head.
template <typename Items>
struct TileRanking {
  const HeadChoice<Items>& choice;
  DigitMemory& memory;
  TileNotes notes;

  [[nodiscard]] __device__ unsigned tiles() const { return choice.call.tiles; }

  /// Makes the keys of a tile, and counts them for the block that ends last.
  __device__ void rank(unsigned number) const {
    DigitCounts counts(memory);
    choice.find_shares(shared_shares());
    make_keys(choice, choice.call.tile(number), shared_shares(), counts);
    counts.add_up();
    std::uint32_t* const own = notes.at_least + static_cast<std::size_t>(number) * digits;
    for (unsigned i = threadIdx.x; tiles() > 1 && i < digits; i += choose_threads) {
      own[i] = memory.counts[i];
    }
  }

  /// Finds the threshold, and where positions of tiles begin.
  __device__ void finish() const {
    if (tiles() > 1) add_tiles();
    const Threshold threshold = find_threshold(choice, memory);
    if (threadIdx.x == 0) {
      notes.threshold[0] = threshold.key;
      notes.threshold[1] = threshold.ties;
    }
    count_before(threshold.key);
  }

 private:
  __device__ void add_tiles() const {
    for (unsigned i = threadIdx.x; i < digits; i += choose_threads) {
      unsigned sum = 0;
#pragma unroll 8
      for (unsigned tile = 0; tile < tiles(); ++tile) {
        sum += notes.at_least[static_cast<std::size_t>(tile) * digits + i];
      }
      memory.counts[i] = sum;
    }
    __syncthreads();
  }

  /// Counts are those of a tile's listed candidates above the threshold, then at it.
  __device__ void count_before(std::uint32_t key) const {
    DigitCounts counts(memory);
    counts.clear();
    const unsigned size = choice.call.tile_size;
    for_each_listed(choice, memory.listed, [&](unsigned item, std::uint32_t own) {
      if (own < key) return;
      counts.add(2 * (item / size) + (own == key ? 1 : 0), choice.call.items.size(item));
    });
    __syncthreads();
    if (threadIdx.x >= tiles()) return;
    const std::uint32_t above = first_digit(key) + 1;
    unsigned whole = 0;
    unsigned cut = 0;
    for (unsigned tile = 0; tile < threadIdx.x; ++tile) {
      const std::size_t first = static_cast<std::size_t>(tile) * digits;
      whole += memory.counts[2 * tile] + (above == digits ? 0 : notes.at_least[first + above]);
      cut += memory.counts[2 * tile + 1];
    }
    notes.before[2 * threadIdx.x] = whole;
    notes.before[2 * threadIdx.x + 1] = cut;
  }
};

/// blockIdx: tile, KV head, call.
template <typename Items, unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    rank_tiles(const Calls<Choosing<Items>, capacity> __grid_constant__ calls,
               std::uint32_t* ended_blocks) {
  __shared__ DigitMemory memory;
  const Choosing<Items>& call = calls.of_block();
  const HeadChoice<Items> choice(call, blockIdx.y);
  if (blockIdx.x == 0 && threadIdx.x == 0) call.common.id_count[choice.head] = choice.wanted;
  if (blockIdx.x >= call.tiles || choice.wanted == 0 || choice.takes_all()) return;
  const TileRanking<Items> ranking{choice, memory, call.notes(choice.head)};
  ranking.rank(blockIdx.x);
  std::uint32_t* const ended = ended_blocks + calls.call() * gridDim.y + blockIdx.y;
  if (ends_last(ended, call.tiles)) ranking.finish();
}

/// blockIdx: tile, KV head, call.
template <typename Items, unsigned capacity>
__global__ void __launch_bounds__(choose_threads)
    write_tiles(const Calls<Choosing<Items>, capacity> __grid_constant__ calls) {
  __shared__ BlockScan<choose_threads>::Shared scan;
  const Choosing<Items>& call = calls.of_block();
  if (blockIdx.x >= call.tiles) return;
  const HeadChoice<Items> choice(call, blockIdx.y);
  if (choice.wanted == 0) return;
  const Tile tile = call.tile(blockIdx.x);
  PositionList list{call.common.ids + choice.head * call.common.id_stride, 0};
  std::uint32_t key = 0;
  if (choice.takes_all()) {
    list.whole = call.items.first_of(tile.begin);
  } else {
    const TileNotes notes = call.notes(choice.head);
    key = notes.threshold[0];
    list.cut_to = notes.threshold[1];
    list.whole = notes.before[2 * blockIdx.x];
    list.cut = notes.before[2 * blockIdx.x + 1];
  }
  write_chosen(choice, tile, key, list, scan);
}

template <typename Items, unsigned capacity>
Status launch_tiles(const Calls<Choosing<Items>, capacity>& calls, unsigned tiles,
                    std::size_t shared, const Launch& launch) {
  const dim3 grid = calls.grid(tiles, static_cast<unsigned>(calls.each[0].common.shape.kv_heads));
  TERRACE_TRY(launch_kernel(launch, {grid, choose_threads, shared}, "selection",
                            rank_tiles<Items, capacity>, calls, launch.scratch));
  return launch_kernel(launch, {grid, choose_threads}, "selection", write_tiles<Items, capacity>,
                       calls);
}

template <typename Items, unsigned capacity>
Status launch_choice(const Calls<Choosing<Items>, capacity>& calls, const Launch& launch) {
  const KvShape& shape = calls.each[0].common.shape;
  const bool scored = std::ranges::any_of(calls.all(), [](const Choosing<Items>& call) {
    return candidates_to_score(call.common) > 0;
  });
  const auto tiles = calls.largest([](const Choosing<Items>& call) { return call.tiles; });
  std::size_t shared = 0;
  if (shape.group() > 1 && scored && tiles > 0) {
    shared = shape.group() * sizeof(HeadShare);
    const dim3 grid = calls.grid(tiles, static_cast<unsigned>(shape.query_heads));
    TERRACE_TRY(launch_kernel(launch, {grid, choose_threads}, "selection",
                              sum_tiles<Items, capacity>, calls));
  }
  const auto items = calls.largest([](const Choosing<Items>& call) { return call.items.count(); });
  const bool words_suffice = shape.kv_heads * calls.count <= scratch_words;
  if (scored && items > one_block_items && words_suffice) {
    return launch_tiles(calls, tiles, shared, launch);
  }
  const dim3 grid = calls.grid(static_cast<unsigned>(shape.kv_heads));
  return launch_kernel(launch, {grid, choose_threads, shared}, "selection", choose<Items, capacity>,
                       calls);
}

template <typename Select>
Choosing<Tokens> choosing_of(const Select& op) {
  return {op.common, Tokens{static_cast<unsigned>(op.common.candidates.size())}};
}

Choosing<Pages> choosing_of(const PageSelect& op) {
  const CandidatePages pages = CandidatePages::of(op);
  return {op.common,
          Pages{static_cast<unsigned>(op.common.candidates.size()),
                static_cast<unsigned>(pages.page_tokens), static_cast<unsigned>(pages.count),
                static_cast<unsigned>(pages.skipped)}};
}

Choosing<Listed> choosing_of(const RefineSelect& op) {
  SelectCommon common = op.common;
  common.candidates = {0, op.proposed_stride};
  common.held = {};
  return {common,
          Listed{static_cast<unsigned>(op.proposed_stride), op.proposed, op.proposed_count}};
}

/// Candidates are groups; how many are chosen is written where entries are counted afterwards.
Choosing<Tokens> choosing_of(const EstimateRest& op) {
  const RestWork work(op);
  SelectCommon common{.shape = op.shape,
                      .candidates = {0, work.groups()},
                      .count = {.mean = op.most},
                      .ids = reinterpret_cast<std::uint32_t*>(op.scratch + work.chosen(0)),
                      .id_count = op.pseudo.count,
                      .id_stride = work.groups(),
                      .scratch = op.scratch + work.logits(0)};
  return {common, Tokens{static_cast<unsigned>(work.groups())}};
}

template <typename Select>
Status choose_all(std::span<const Select> batch, const Launch& launch) {
  return launch_calls(
      batch, [](const Select& op) { return choosing_of(op); },
      [&](const auto& calls) { return launch_choice(calls, launch); });
}

}  // namespace

Status choose_largest(std::span<const PqSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const ExactSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const ChannelSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const PageSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const RefineSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const EstimateRest> batch, const Launch& launch) {
  return choose_all(batch, launch);
}
Status choose_largest(std::span<const SignSelect> batch, const Launch& launch) {
  return choose_all(batch, launch);
}

}  // namespace terrace::kernels::cuda
