// Vectors of f32 to and from numbers of any dtype. Included once per target, as Highway's
// foreach_target.h demands.
#if defined(TERRACE_KERNELS_NUMBERS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_NUMBERS_INL
#undef TERRACE_KERNELS_NUMBERS_INL
#else
#define TERRACE_KERNELS_NUMBERS_INL
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

using WordTag = hn::RebindToUnsigned<FloatTag>;
using Words = hn::Vec<WordTag>;
using NarrowTag = hn::Rebind<std::uint16_t, WordTag>;

HWY_INLINE Words word(std::uint32_t value) { return hn::Set(WordTag(), value); }
HWY_INLINE Words words_of(Floats floats) { return hn::BitCast(WordTag(), floats); }
HWY_INLINE Floats floats_of(Words bits) { return hn::BitCast(FloatTag(), bits); }
HWY_INLINE Words choose(hn::Mask<WordTag> mask, Words yes, Words no) {
  return hn::IfThenElse(mask, yes, no);
}

/// Stores the lower halves of words; the upper halves must be 0.
HWY_INLINE void store_halves(Words halves, std::byte* at) {
  const hn::RebindToSigned<WordTag> numbers;
  hn::StoreU(hn::DemoteTo(NarrowTag(), hn::BitCast(numbers, halves)), NarrowTag(),
             reinterpret_cast<std::uint16_t*>(at));
}

// A struct per dtype: converts `lanes` numbers at any address to f32, and back. The steps are those
// of terrace/core/dtype.hpp: a CPU's own conversions of f16 give other bits of NaN.
struct F32Numbers : F32Elements {
  static HWY_INLINE void store(Floats floats, std::byte* at) {
    hn::StoreU(floats, FloatTag(), reinterpret_cast<float*>(at));
  }
};

struct F16Numbers {
  static constexpr std::size_t bytes = 2;
  static HWY_INLINE Floats load(const std::byte* at) {
    const WordTag tag;
    const hn::RebindToSigned<WordTag> numbers;
    const Words half =
        hn::PromoteTo(tag, hn::LoadU(NarrowTag(), reinterpret_cast<const std::uint16_t*>(at)));
    const Words magnitude = hn::And(half, word(0x7fff));
    const Words shifted = hn::ShiftLeft<13>(magnitude);
    const Words normal = hn::Add(shifted, word(0x38000000));
    const Words not_finite = hn::Add(shifted, word(0x70000000));
    const Words subnormal = words_of(hn::Mul(
        hn::ConvertTo(FloatTag(), hn::BitCast(numbers, magnitude)), hn::Set(FloatTag(), 0x1p-24F)));
    const Words wide = choose(hn::Gt(word(0x400), magnitude), subnormal,
                              choose(hn::Gt(magnitude, word(0x7bff)), not_finite, normal));
    return floats_of(hn::Or(wide, hn::ShiftLeft<16>(hn::Xor(half, magnitude))));
  }
  static HWY_INLINE void store(Floats floats, std::byte* at) {
    const Words bits = words_of(floats);
    const Words magnitude = hn::And(bits, word(0x7fffffff));
    const Words odd = hn::And(hn::ShiftRight<13>(magnitude), word(1));
    const Words normal =
        hn::ShiftRight<13>(hn::Add(hn::Add(magnitude, odd), word(0xfffU - 0x38000000U)));
    const Words subnormal = hn::Sub(
        words_of(hn::Add(floats_of(magnitude), hn::Set(FloatTag(), 0.5F))), word(0x3f000000));
    const Words finite = choose(hn::Gt(word(0x38800000), magnitude), subnormal, normal);
    const Words half = choose(hn::Gt(magnitude, word(0x7f800000)), word(0x7e00),
                              choose(hn::Gt(magnitude, word(0x477fefff)), word(0x7c00), finite));
    store_halves(hn::Or(half, hn::ShiftRight<16>(hn::Xor(bits, magnitude))), at);
  }
};

struct Bf16Numbers : Bf16Elements {
  static HWY_INLINE void store(Floats floats, std::byte* at) {
    const Words bits = words_of(floats);
    const Words upper = hn::ShiftRight<16>(bits);
    const Words odd = hn::And(upper, word(1));
    const Words rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, odd), word(0x7fff)));
    const auto is_nan = hn::Gt(hn::And(bits, word(0x7fffffff)), word(0x7f800000));
    store_halves(choose(is_nan, hn::Or(upper, word(0x40)), rounded), at);
  }
};

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
