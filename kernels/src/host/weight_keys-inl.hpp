// Keys of weights, a vector at a time: see host/weight_keys.hpp. Included once per target.
#if defined(TERRACE_KERNELS_WEIGHT_KEYS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_WEIGHT_KEYS_INL
#undef TERRACE_KERNELS_WEIGHT_KEYS_INL
#else
#define TERRACE_KERNELS_WEIGHT_KEYS_INL
#endif

#include "host/vectors-inl.hpp"
#include "host/weight_keys.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

using KeyTag = hn::RebindToSigned<FloatTag>;
using Keys = hn::Vec<KeyTag>;

/// Flips the bits below the sign of negative numbers: then integers order as the floats do.
HWY_INLINE Keys keys_of(Floats weights) {
  const FloatTag tag;
  const KeyTag key_tag;
  const Keys bits = hn::BitCast(key_tag, hn::Add(weights, hn::Zero(tag)));  // -0 becomes +0
  const Keys flip = hn::And(hn::ShiftRight<31>(bits), hn::Set(key_tag, highest_key));
  const auto number = hn::RebindMask(key_tag, hn::Eq(weights, weights));
  return hn::IfThenElse(number, hn::Xor(bits, flip), hn::Set(key_tag, lowest_key));
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
