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

/// A list of positions in the making.
struct PositionList {
  std::uint32_t* ids;
  unsigned cut_to;  ///< how many that are cut it takes in all
  // Candidates before those that are added now:
  unsigned whole = 0;  ///< that are in
  unsigned cut = 0;    ///< that are cut

  [[nodiscard]] __device__ unsigned count() const { return whole + (cut < cut_to ? cut : cut_to); }
};

/// Adds position(i) to a list, for each i of [0, count) that is in, in their order. standing(i) is
/// asked once. Every thread of the block calls it.
template <typename StandingOf, typename PositionOf>
__device__ inline void write_positions(PositionList& list, unsigned count, StandingOf standing,
                                       PositionOf position,
                                       BlockScan<choose_threads>::Shared& shared) {
  constexpr unsigned at_once = 8;  // of a thread, side by side
  constexpr unsigned round = choose_threads * at_once;
  BlockScan<choose_threads> scan(shared);
  for (unsigned first = 0; first < count; first += round) {
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
    PositionList next = list;
    next.whole += before & 0xffffU;
    next.cut += before >> 16;
    for (unsigned k = 0; k < at_once; ++k) {
      const bool is_cut = standings[k] == Standing::cut;
      if (standings[k] == Standing::in || (is_cut && next.cut < next.cut_to)) {
        next.ids[next.count()] = position(mine + k);
      }
      next.whole += standings[k] == Standing::in ? 1 : 0;
      next.cut += is_cut ? 1 : 0;
    }
    list.whole += total & 0xffffU;
    list.cut += total >> 16;
  }
}

}  // namespace terrace::kernels::cuda
