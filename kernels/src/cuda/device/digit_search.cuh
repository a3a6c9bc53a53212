// The key that a wanted number of candidates reach, found digit by digit, from the highest on.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "device/head_choice.cuh"

namespace terrace::kernels::cuda {

inline constexpr unsigned digit_bits = 11;
inline constexpr unsigned digits = 1U << digit_bits;
static_assert(digits == SelectionTiles::counts);

__device__ inline std::uint32_t first_digit(std::uint32_t key) { return key >> (32 - digit_bits); }

/// Counts of candidates by a digit of their keys.
class DigitCounts {
 public:
  struct Shared {
    unsigned counts[digits];
    BlockScan<choose_threads>::Shared scan;
    std::uint32_t digit;
    unsigned listed;
  };

  __device__ explicit DigitCounts(Shared& shared) : shared_(shared) {}

  /// Every thread of the block calls it, as all below but add().
  __device__ void clear() {
    for (unsigned i = threadIdx.x; i < digits; i += choose_threads) shared_.counts[i] = 0;
    __syncthreads();
  }
  __device__ void add(std::uint32_t digit, unsigned candidates) {
    atomicAdd(&shared_.counts[digit], candidates);
  }

  /// Makes of each digit's count that of it and all higher digits.
  __device__ void add_up() {
    __syncthreads();
    constexpr unsigned per_thread = digits / choose_threads;
    // Threads in descending order of their digits, so that a sum over threads before is of the
    // higher.
    const unsigned top = digits - 1 - threadIdx.x * per_thread;
    unsigned own = 0;
    for (unsigned i = 0; i < per_thread; ++i) own += shared_.counts[top - i];
    unsigned total = 0;
    unsigned at_least = BlockScan<choose_threads>(shared_.scan).exclusive_sum(own, total);
    for (unsigned i = 0; i < per_thread; ++i) {
      at_least += shared_.counts[top - i];
      shared_.counts[top - i] = at_least;
    }
    __syncthreads();
  }

  /// Returns the digit that the `wanted`-th candidate has by falling digits, once counts are added
  /// up, and takes those with higher ones from `wanted`.
  [[nodiscard]] __device__ std::uint32_t find(unsigned& wanted) {
    for (unsigned digit = threadIdx.x; digit < digits; digit += choose_threads) {
      if (shared_.counts[digit] >= wanted && above(digit) < wanted) shared_.digit = digit;
    }
    __syncthreads();
    const std::uint32_t digit = shared_.digit;
    wanted -= above(digit);
    __syncthreads();
    return digit;
  }

 private:
  [[nodiscard]] __device__ unsigned above(unsigned digit) const {
    return digit + 1 == digits ? 0 : shared_.counts[digit + 1];
  }

  Shared& shared_;
};

using DigitMemory = DigitCounts::Shared;

/// Held candidates rank after all others.
template <typename Items>
__device__ inline void give_lowest_keys(const HeadChoice<Items>& choice, Tile tile,
                                        DigitCounts& counts) {
  const SelectCommon& common = choice.call.common;
  const std::size_t begin = common.candidates.begin;
  const TokenRange held = common.held.among({begin + tile.begin, begin + tile.end}, choice.head);
  for (std::size_t i = held.begin + threadIdx.x; i < held.end; i += choose_threads) {
    std::uint32_t& key = choice.keys()[common.held.positions[i] - begin];
    counts.add(first_digit(key), 0U - 1U);
    counts.add(0, 1);
    key = 0;
  }
}

/// Makes the keys of a tile's items, and counts their candidates by the first digit.
template <typename Items>
__device__ inline void make_keys(const HeadChoice<Items>& choice, Tile tile,
                                 const HeadShare* shares, DigitCounts& counts) {
  constexpr unsigned at_once = 8;
  std::uint32_t* const keys = choice.keys();
  counts.clear();
  for (unsigned first = tile.begin + threadIdx.x; first < tile.end;
       first += at_once * choose_threads) {
    float weights[at_once];
    choice.weigh(first, tile.end, shares, weights);
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const unsigned i = first + k * choose_threads;
      if (i >= tile.end) break;
      const std::uint32_t key = key_of(weights[k]);
      keys[i] = key;
      counts.add(first_digit(key), choice.call.items.size(i));
    }
  }
  if constexpr (Items::may_be_held) {
    if (choice.call.common.held.positions == nullptr) return;
    __syncthreads();
    give_lowest_keys(choice, tile, counts);
  }
}

/// An item of a list, as a thread reads it ahead.
struct ListedItem {
  unsigned item;
  std::uint32_t key;
};

/// Calls use(item, key) for each of `count` items that are listed.
template <typename Items, typename Use>
__device__ inline void for_each_listed(const HeadChoice<Items>& choice, unsigned count, Use use) {
  const std::uint32_t* const list = choice.list();
  const std::uint32_t* const keys = choice.keys();
  read_ahead<choose_threads>(
      count, [=](unsigned i) { return ListedItem{list[i], keys[list[i]]}; },
      [&](unsigned, const ListedItem& one) { use(one.item, one.key); });
}

/// Lists the items whose keys begin with `digit`, in any order. Returns how many there are.
template <typename Items>
__device__ inline unsigned list_items(const HeadChoice<Items>& choice, std::uint32_t digit,
                                      DigitMemory& memory) {
  const std::uint32_t* const keys = choice.keys();
  std::uint32_t* const list = choice.list();
  if (threadIdx.x == 0) memory.listed = 0;
  __syncthreads();
  read_ahead<choose_threads>(
      choice.call.items.count(), [=](unsigned i) { return keys[i]; },
      [&](unsigned i, std::uint32_t key) {
        if (first_digit(key) == digit) list[atomicAdd(&memory.listed, 1U)] = i;
      });
  __syncthreads();
  return memory.listed;
}

/// Finds the key that the `wanted`-th candidate has, 0 < wanted < candidates, once those of all
/// items are counted by their first digit, and added up. Items that have it are listed then:
/// memory.listed.
template <typename Items>
__device__ inline Threshold find_threshold(const HeadChoice<Items>& choice, DigitMemory& memory) {
  DigitCounts counts(memory);
  unsigned wanted = choice.wanted;
  std::uint32_t prefix = counts.find(wanted);  // the digits of the key sought that are known
  const unsigned listed = list_items(choice, prefix, memory);
  for (unsigned shift = 32 - digit_bits; shift > 0;) {
    const unsigned bits = shift < digit_bits ? shift : digit_bits;
    counts.clear();
    for_each_listed(choice, listed, [&](unsigned item, std::uint32_t key) {
      if (key >> shift != prefix) return;
      const std::uint32_t digit = key >> (shift - bits) & ((1U << bits) - 1);
      counts.add(digit, choice.call.items.size(item));
    });
    counts.add_up();
    prefix = prefix << bits | counts.find(wanted);
    shift -= bits;
  }
  return {prefix, wanted};
}

}  // namespace terrace::kernels::cuda
