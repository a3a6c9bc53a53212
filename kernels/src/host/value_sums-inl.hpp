// Sums of values, each query head giving them weights of its own. Included once per target, as
// Highway's foreach_target.h demands.
#if defined(TERRACE_KERNELS_VALUE_SUMS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_VALUE_SUMS_INL
#undef TERRACE_KERNELS_VALUE_SUMS_INL
#else
#define TERRACE_KERNELS_VALUE_SUMS_INL
#endif

#include <cstddef>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Query heads, each seeing at least as many of the values as the head before it.
struct WeighedHeads {
  const float* weights;  // [heads, stride]
  std::size_t stride;
  const float* factors;     // by which a head's sums are multiplied before
  const std::size_t* seen;  // values that a head takes
  float* const* sums;
  std::size_t dim;  // of the sums, which the values begin with
};

/// The places of vectors of sums: whole vectors, or one with `count` numbers.
struct WholeSums {
  HWY_INLINE Floats load(const float* at) const { return hn::LoadU(FloatTag(), at); }
  HWY_INLINE void store(Floats sum, float* at) const { hn::StoreU(sum, FloatTag(), at); }
};
struct LastSums {
  std::size_t count;
  HWY_INLINE Floats load(const float* at) const {
    return load_tail<F32Elements>(reinterpret_cast<const std::byte*>(at), count);
  }
  HWY_INLINE void store(Floats sum, float* at) const {
    alignas(64) float numbers[lanes];
    hn::Store(sum, FloatTag(), numbers);
    std::memcpy(at, numbers, count * sizeof(float));
  }
};

/// Adds what the later heads see beyond the first one.
template <std::size_t heads, std::size_t width, typename Place>
HWY_NOINLINE void add_further_values(const WeighedHeads& of, const float* HWY_RESTRICT values,
                                     Place place) {
  const FloatTag tag;
  for (std::size_t h = 1; h < heads; ++h) {
    for (std::size_t v = 0; v < width; ++v) {
      float* at = of.sums[h] + of.dim + v * lanes;
      Floats sum = place.load(at);
      for (std::size_t t = of.seen[0]; t < of.seen[h]; ++t) {
        const Floats value = hn::Load(tag, values + (t * width + v) * lanes);
        sum = hn::MulAdd(hn::Set(tag, of.weights[h * of.stride + t]), value, sum);
      }
      place.store(sum, at);
    }
  }
}

/// Adds values, [.., width * lanes], to vectors of sums, one after the other.
template <std::size_t heads, std::size_t width, typename Place>
HWY_NOINLINE void add_values(const WeighedHeads& of, const float* HWY_RESTRICT values,
                             Place place) {
  const FloatTag tag;
  Floats sums[heads * width];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < heads * width; ++i) {
    const Floats before = place.load(of.sums[i / width] + of.dim + i % width * lanes);
    sums[i] = hn::Mul(before, hn::Set(tag, of.factors[i / width]));
  }
  for (std::size_t t = 0; t < of.seen[0]; ++t) {
    Floats value[width];
#pragma GCC unroll 2
    for (std::size_t v = 0; v < width; ++v) {
      value[v] = hn::Load(tag, values + (t * width + v) * lanes);
    }
#pragma GCC unroll 8
    for (std::size_t h = 0; h < heads; ++h) {
      const Floats weight = hn::Set(tag, of.weights[h * of.stride + t]);
#pragma GCC unroll 2
      for (std::size_t v = 0; v < width; ++v) {
        sums[h * width + v] = hn::MulAdd(weight, value[v], sums[h * width + v]);
      }
    }
  }
#pragma GCC unroll 16
  for (std::size_t i = 0; i < heads * width; ++i) {
    place.store(sums[i], of.sums[i / width] + of.dim + i % width * lanes);
  }
  if (of.seen[heads - 1] > of.seen[0]) add_further_values<heads, width>(of, values, place);
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
