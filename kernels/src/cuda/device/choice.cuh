// The parts of choosing by weight: weights as integers, reductions of a block, and the positions of
// the chosen candidates, written in rising order.
#pragma once

#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "device/block_scan.cuh"

namespace terrace::kernels::cuda {

inline constexpr unsigned choose_threads = 1024;  // of a block that chooses

/// Calls use(i, read(i)) for each i of [0, count), a thread of the block for every `threads`-th of
/// them: it reads several before it uses the first.
template <unsigned threads, typename Read, typename Use>
__device__ inline void read_ahead(unsigned count, Read read, Use use) {
  constexpr unsigned at_once = 8;
  for (unsigned first = threadIdx.x; first < count; first += at_once * threads) {
    decltype(read(0U)) items[at_once];
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const unsigned i = first + k * threads;
      if (i < count) items[k] = read(i);
    }
#pragma unroll
    for (unsigned k = 0; k < at_once; ++k) {
      const unsigned i = first + k * threads;
      if (i < count) use(i, items[k]);
    }
  }
}

/// NaN counts as -inf, +inf as the largest float.
__device__ inline float limit(float logit) {
  if (logit != logit) return -INFINITY;
  return fminf(logit, FLT_MAX);
}

/// Returns an integer in the order of the floats, NaN lowest and -0 as +0.
__device__ inline std::uint32_t key_of(float weight) {
  if (weight != weight) return 0;
  const std::uint32_t bits = __float_as_uint(weight + 0.0F);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}

struct Sum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// The larger one; NaN only if both are.
struct Maximum {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b || b != b ? a : b;
  }
};

/// Combines a value of every thread, in an order that depends on the block's size alone. `shared`
/// has a place for each warp.
template <typename T, typename Combine>
__device__ inline T reduce_block(T value, Combine combine, T* shared) {
  for (int mask = warpSize / 2; mask > 0; mask /= 2) {
    value = combine(value, __shfl_xor_sync(all_lanes, value, mask));
  }
  __syncthreads();  // what was shared before has been read
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  T result = shared[0];
  for (unsigned i = 1; i < blockDim.x / 32; ++i) result = combine(result, shared[i]);
  return result;
}

/// How a candidate stands to what was chosen.
enum class Standing : std::uint8_t {
  out,
  in,
  cut,  ///< in, if it is among the first so many that say so
};

/// Writes begin + i for each i of [0, count) that is in, rising, and returns how many there are.
/// standing(i) is asked once. Every thread of the block calls it.
template <typename StandingOf>
__device__ inline unsigned write_positions(unsigned begin, unsigned count, unsigned cut_to,
                                           StandingOf standing, std::uint32_t* ids,
                                           BlockScan<choose_threads>::Shared& shared) {
  constexpr unsigned at_once = 8;  // of a thread, side by side
  constexpr unsigned tile = choose_threads * at_once;
  BlockScan<choose_threads> scan(shared);
  const auto taken = [cut_to](unsigned cut) { return cut < cut_to ? cut : cut_to; };
  unsigned whole = 0;  // in the tiles before: those in, and those cut
  unsigned cut = 0;
  for (unsigned first = 0; first < count; first += tile) {
    const unsigned mine = first + threadIdx.x * at_once;
    Standing standings[at_once];
    unsigned own = 0;  // those in in the low half, those cut in the high half
    for (unsigned k = 0; k < at_once; ++k) {
      standings[k] = mine + k < count ? standing(mine + k) : Standing::out;
      if (standings[k] == Standing::in) own += 1;
      if (standings[k] == Standing::cut) own += 1U << 16;
    }
    unsigned total = 0;
    const unsigned before = scan.exclusive_sum(own, total);
    unsigned my_whole = whole + (before & 0xffffU);
    unsigned my_cut = cut + (before >> 16);
    for (unsigned k = 0; k < at_once; ++k) {
      const bool is_cut = standings[k] == Standing::cut;
      if (standings[k] == Standing::in || (is_cut && my_cut < cut_to)) {
        ids[my_whole + taken(my_cut)] = begin + mine + k;
      }
      my_whole += standings[k] == Standing::in ? 1 : 0;
      my_cut += is_cut ? 1 : 0;
    }
    whole += total & 0xffffU;
    cut += total >> 16;
  }
  return whole + taken(cut);
}

}  // namespace terrace::kernels::cuda
