// The device language as plain C++: what __global__ and __device__ functions are written in.
//
// Threads of a block are fibers of the stream's thread (fiber_block.hpp). __shared__ variables are
// thread-local: blocks run one after the other. A shuffle orders no memory, a barrier does, and the
// thread sanitizer is told so: a missing __syncthreads is a data race.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cuda_on_host/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __shared__ thread_local
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
// A grid constant is the same memory for all threads of a grid: written after its type, it makes a
// parameter a reference to the launch's copy.
#define __grid_constant__ &

// Set before a thread of a block runs, never while it does.
extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
constexpr int warpSize = 32;

namespace cuda_on_host {

/// Waits for all threads of the block that have not ended.
void block_barrier();

/// The same barrier, which says whether the predicate of each of them holds.
bool block_barrier_and(bool predicate);

/// Waits for all lanes of `mask`; with `ordered`, what they wrote is visible after it.
void warp_barrier(unsigned mask, bool ordered);

/// Offers `bits` to the lanes of `mask` and returns what lane `source` of the warp offers.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source);

/// Returns a bit for each lane of `mask` whose predicate holds.
unsigned ballot(unsigned mask, bool predicate);

/// The calling thread's place in its warp, and in its block.
unsigned lane_index();

template <typename T>
T shuffle(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(mask, bits, source);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

/// First lane of the caller's segment of `width` lanes.
inline unsigned segment(int width) { return lane_index() & ~(static_cast<unsigned>(width) - 1); }

}  // namespace cuda_on_host

inline void __syncthreads() { cuda_on_host::block_barrier(); }
inline int __syncthreads_and(int predicate) {
  return cuda_on_host::block_barrier_and(predicate != 0) ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU) { cuda_on_host::warp_barrier(mask, true); }
// Atomics of the stand-in order memory where kernels rely on it: blocks run one after the other.
inline void __threadfence() {}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize) {
  const unsigned inside = static_cast<unsigned>(source) & (static_cast<unsigned>(width) - 1);
  return cuda_on_host::shuffle(mask, value, cuda_on_host::segment(width) + inside);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize) {
  const unsigned other = cuda_on_host::lane_index() ^ static_cast<unsigned>(lane_mask);
  const bool inside = other < cuda_on_host::segment(width) + static_cast<unsigned>(width);
  return cuda_on_host::shuffle(mask, value, inside ? other : cuda_on_host::lane_index());
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const unsigned lane = cuda_on_host::lane_index();
  const bool inside = lane >= cuda_on_host::segment(width) + delta;
  return cuda_on_host::shuffle(mask, value, inside ? lane - delta : lane);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize) {
  const unsigned other = cuda_on_host::lane_index() + delta;
  const bool inside = other < cuda_on_host::segment(width) + static_cast<unsigned>(width);
  return cuda_on_host::shuffle(mask, value, inside ? other : cuda_on_host::lane_index());
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return cuda_on_host::ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return cuda_on_host::ballot(mask, predicate != 0) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return cuda_on_host::ballot(mask, predicate != 0) == mask ? 1 : 0;
}

template <typename T>
T atomicAdd(T* address, T value) {
  return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}
template <typename T>
T atomicExch(T* address, T value) {
  return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
/// The sum of four products of signed bytes, and `sum`.
inline int __dp4a(int a, int b, int sum) {
  for (int at = 0; at < 32; at += 8) {
    sum += static_cast<std::int8_t>(a >> at) * static_cast<std::int8_t>(b >> at);
  }
  return sum;
}
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
template <typename T>
T __ldg(const T* address) {
  return *address;
}
template <typename T>
T __ldcg(const T* address) {
  return *address;
}
