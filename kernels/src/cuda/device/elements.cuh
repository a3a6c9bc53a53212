// Elements of rows as f32: 16 bytes at once if they are aligned, else one by one, with the same
// result.
//
// Loads that a thread is to have under way together must not have a branch between them: a block
// finds out once whether all its rows are whole vectors (is_whole), and then reads with load_whole.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "terrace/core/dtype.hpp"

namespace terrace::kernels::cuda {

__host__ __device__ inline bool is_aligned(const void* address, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(address) % to == 0;
}

/// Returns one of a vector's four words; which one is known when the kernel is compiled.
__device__ inline unsigned word_of(const uint4& raw, unsigned i) {
  return i < 2 ? (i == 0 ? raw.x : raw.y) : (i == 2 ? raw.z : raw.w);
}

struct F32Elements {
  static constexpr unsigned bytes = 4;
  static constexpr unsigned per_vector = 4;
  __device__ static void widen(const uint4& raw, float* out) {
    out[0] = __uint_as_float(raw.x);
    out[1] = __uint_as_float(raw.y);
    out[2] = __uint_as_float(raw.z);
    out[3] = __uint_as_float(raw.w);
  }
  __device__ static float element(const uint4& raw, unsigned i) {
    return __uint_as_float(word_of(raw, i));
  }
  __device__ static uint4 narrow(const float* in) {
    return {__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
            __float_as_uint(in[3])};
  }
  __device__ static float load(const std::byte* at) { return *reinterpret_cast<const float*>(at); }
  __device__ static void store(std::byte* at, float value) {
    *reinterpret_cast<float*>(at) = value;
  }
};

/// The common part of the 2-byte dtypes; Derived::of turns 16 bits into a float, Derived::bits
/// rounds one to the nearest, ties to even.
template <typename Derived>
struct HalfElements {
  static constexpr unsigned bytes = 2;
  static constexpr unsigned per_vector = 8;
  __device__ static void widen(const uint4& raw, float* out) {
    const unsigned words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      out[2 * i] = Derived::of(static_cast<std::uint16_t>(words[i] & 0xffffU));
      out[2 * i + 1] = Derived::of(static_cast<std::uint16_t>(words[i] >> 16));
    }
  }
  __device__ static float element(const uint4& raw, unsigned i) {
    return Derived::of(static_cast<std::uint16_t>(word_of(raw, i / 2) >> (i % 2 * 16) & 0xffffU));
  }
  __device__ static uint4 narrow(const float* in) {
    unsigned words[4];
#pragma unroll
    for (unsigned i = 0; i < 4; ++i) {
      words[i] = Derived::bits(in[2 * i]) | static_cast<unsigned>(Derived::bits(in[2 * i + 1]))
                                                << 16;
    }
    return {words[0], words[1], words[2], words[3]};
  }
  __device__ static float load(const std::byte* at) {
    return Derived::of(*reinterpret_cast<const std::uint16_t*>(at));
  }
  __device__ static void store(std::byte* at, float value) {
    *reinterpret_cast<std::uint16_t*>(at) = Derived::bits(value);
  }
};

struct F16Elements : HalfElements<F16Elements> {
  __device__ static float of(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
  __device__ static std::uint16_t bits(float value) {
    return __half_as_ushort(__float2half_rn(value));
  }
};

struct Bf16Elements : HalfElements<Bf16Elements> {
  __device__ static float of(std::uint16_t bits) {
    return __uint_as_float(static_cast<unsigned>(bits) << 16);
  }
  __device__ static std::uint16_t bits(float value) { return f32_to_bf16(value); }
};

/// Returns call(elements) for the elements of a dtype: where a kernel is chosen.
template <typename Call>
auto with_elements(Dtype dtype, Call call) {
  switch (dtype) {
    case Dtype::f32:
      return call(F32Elements());
    case Dtype::f16:
      return call(F16Elements());
    case Dtype::bf16:
      break;
  }
  return call(Bf16Elements());
}

/// Whether a row of `dims` elements at an address is made of whole vectors: what load_whole reads.
template <typename Elements>
__device__ inline bool is_whole(const std::byte* row, unsigned dims) {
  return dims % Elements::per_vector == 0 && is_aligned(row, sizeof(uint4));
}

/// Reads a whole vector of memory that no thread of the kernel writes.
template <typename Elements>
__device__ inline uint4 load_whole(const std::byte* at) {
  return __ldg(reinterpret_cast<const uint4*>(at));
}

/// Reads the first `count` elements of a vector; the others become 0.
template <typename Elements>
__device__ inline void load_vector(const std::byte* at, unsigned count, float* out) {
  if (count >= Elements::per_vector && is_aligned(at, sizeof(uint4))) {
    Elements::widen(*reinterpret_cast<const uint4*>(at), out);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < Elements::per_vector; ++i) {
    out[i] = i < count ? Elements::load(at + i * Elements::bytes) : 0.0F;
  }
}

/// Writes the first `count` elements of a vector.
template <typename Elements>
__device__ inline void store_vector(std::byte* at, unsigned count, const float* in) {
  if (count >= Elements::per_vector && is_aligned(at, sizeof(uint4))) {
    *reinterpret_cast<uint4*>(at) = Elements::narrow(in);
    return;
  }
#pragma unroll
  for (unsigned i = 0; i < Elements::per_vector; ++i) {
    if (i < count) Elements::store(at + i * Elements::bytes, in[i]);
  }
}

}  // namespace terrace::kernels::cuda
