// The base of every vector kernel here: the f32 vector of the target, rows of any dtype read as
// f32, and sums over lanes. Included once per target, as Highway's foreach_target.h demands.
#if defined(TERRACE_KERNELS_VECTORS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_VECTORS_INL
#undef TERRACE_KERNELS_VECTORS_INL
#else
#define TERRACE_KERNELS_VECTORS_INL
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Capped, so that vectors may be members of arrays and 16 is the widest padding anyone needs.
using FloatTag = hn::CappedTag<float, 16>;
using Floats = hn::Vec<FloatTag>;
using QuadTag = hn::CappedTag<float, 4>;
using Quad = hn::Vec<QuadTag>;

constexpr std::size_t lanes = hn::MaxLanes(FloatTag());
constexpr std::size_t registers = lanes == 16 ? 32 : 16;  // for vectors

// A struct per dtype: converts `lanes` elements at any address to f32.
struct F32Elements {
  static constexpr std::size_t bytes = 4;
  static HWY_INLINE Floats load(const std::byte* at) {
    return hn::LoadU(FloatTag(), reinterpret_cast<const float*>(at));
  }
};

struct F16Elements {
  static constexpr std::size_t bytes = 2;
  static HWY_INLINE Floats load(const std::byte* at) {
    const FloatTag tag;
    const hn::Rebind<hwy::float16_t, FloatTag> narrow;
    const Floats wide =
        hn::PromoteTo(tag, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(at)));
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
    // Highway's emulation takes the exponent of infinity and NaN for one more finite one.
    const Floats infinity = hn::Set(tag, std::numeric_limits<float>::infinity());
    return hn::IfThenElse(hn::Ge(hn::Abs(wide), hn::Set(tag, 65536.0F)), hn::Or(wide, infinity),
                          wide);
#else
    return wide;
#endif
  }
};

struct Bf16Elements {
  static constexpr std::size_t bytes = 2;
  static HWY_INLINE Floats load(const std::byte* at) {
    const hn::Rebind<hwy::bfloat16_t, FloatTag> narrow;
    return hn::PromoteTo(FloatTag(),
                         hn::LoadU(narrow, reinterpret_cast<const hwy::bfloat16_t*>(at)));
  }
};

/// Reads `count` < lanes elements, and zeros after them; never reads past the last one.
template <typename Elements>
HWY_INLINE Floats load_tail(const std::byte* at, std::size_t count) {
  alignas(64) std::byte whole[lanes * Elements::bytes] = {};
  std::memcpy(whole, at, count * Elements::bytes);
  return Elements::load(whole);
}

/// Adds the blocks of 4 lanes of a vector up.
template <typename Tag>
HWY_INLINE Quad fold_blocks(Tag tag, hn::Vec<Tag> v) {
  if constexpr (hn::MaxLanes(tag) <= 4) {
    return v;
  } else {
    const hn::Half<Tag> half;
    return fold_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Returns the sums of four vectors in each of their blocks of four lanes, side by side. Each sum
/// has the same order of additions.
HWY_INLINE Floats sums_of_blocks(Floats a, Floats b, Floats c, Floats d) {
  const FloatTag tag;
  const hn::Repartition<std::uint64_t, FloatTag> pairs;
  const Floats ab = hn::Add(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b));
  const Floats cd = hn::Add(hn::InterleaveLower(tag, c, d), hn::InterleaveUpper(tag, c, d));
  const auto low = hn::InterleaveLower(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  const auto high = hn::InterleaveUpper(pairs, hn::BitCast(pairs, ab), hn::BitCast(pairs, cd));
  return hn::Add(hn::BitCast(tag, low), hn::BitCast(tag, high));
}

/// Returns the sums of four vectors, side by side. Each sum has the same order of additions.
HWY_INLINE Quad sums_of_lanes(Floats a, Floats b, Floats c, Floats d) {
  return fold_blocks(FloatTag(), sums_of_blocks(a, b, c, d));
}

HWY_INLINE float sum_of_lanes(Floats v) { return hn::GetLane(hn::SumOfLanes(FloatTag(), v)); }

HWY_INLINE float max_of_lanes(Floats v) {
#if HWY_TARGET == HWY_EMU128  // whose maximum of -inf is the lowest float
  alignas(16) float numbers[lanes];
  hn::Store(v, FloatTag(), numbers);
  float maximum = numbers[0];
  for (const float number : numbers) maximum = number > maximum ? number : maximum;
  return maximum;
#else
  return hn::GetLane(hn::MaxOfLanes(FloatTag(), v));
#endif
}

/// Returns a mask of at most 64 lanes as bits, the first lane lowest.
template <typename Tag>
HWY_INLINE std::uint64_t bits_of(Tag tag, hn::Mask<Tag> mask) {
  alignas(8) std::uint8_t bytes[8] = {};
  hn::StoreMaskBits(tag, mask, bytes);
  std::uint64_t bits = 0;
  std::memcpy(&bits, bytes, sizeof bits);
  return bits;
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
