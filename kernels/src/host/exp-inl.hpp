// The exponential of numbers that are not positive: all that a softmax needs.
#if defined(TERRACE_KERNELS_EXP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_EXP_INL
#undef TERRACE_KERNELS_EXP_INL
#else
#define TERRACE_KERNELS_EXP_INL
#endif

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Returns exp(x) for x <= 0, within 2 units in the last place; 0 below -87.3, where the result
/// would be denormal. NaN stays NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2; then exp(r) by its Taylor series, whose eighth-order rest
/// is below 1e-8, and 2^n by its bits.
HWY_INLINE Floats exp_nonpositive(Floats x) {
  const FloatTag tag;
  const hn::RebindToSigned<FloatTag> whole;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(tag, 1.44269504F)));
  const Floats n_float = hn::ConvertTo(tag, n);
  // ln 2 in two parts, the first with so few bits that its product with n is exact.
  Floats r = hn::NegMulAdd(n_float, hn::Set(tag, 0.693359375F), x);
  r = hn::NegMulAdd(n_float, hn::Set(tag, -2.12194440e-4F), r);
  Floats p = hn::Set(tag, 1.0F / 5040.0F);
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0F / 720.0F));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0F / 120.0F));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0F / 24.0F));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0F / 6.0F));
  p = hn::MulAdd(p, r, hn::Set(tag, 0.5F));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0F));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0F));
  const auto power = hn::BitCast(tag, hn::ShiftLeft<23>(hn::Add(n, hn::Set(whole, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(tag, -87.3F)), hn::Mul(p, power));
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
