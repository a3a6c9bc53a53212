// Exponentials of numbers that are not positive: all that a softmax needs.
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

/// Returns 2^x for x <= 0, relatively wrong by less than 2e-7; 0 below -126, where the result would
/// be denormal. NaN stays NaN.
///
/// x = n + r with |r| <= 1/2. Adding 1.5 * 2^23 leaves no bits behind the point, so that the sum
/// is rounded to n, and 127 more makes its low bits the exponent of 2^n. 2^r is the polynomial of
/// degree 5 whose largest error is least.
HWY_INLINE Floats exp2_nonpositive(Floats x) {
  const FloatTag tag;
  const hn::RebindToSigned<FloatTag> whole;
  const Floats shift = hn::Set(tag, 12582912.0F + 127.0F);
  const Floats shifted = hn::Add(x, shift);
  const Floats r = hn::Sub(x, hn::Sub(shifted, shift));
  Floats p = hn::Set(tag, 0.00132647273F);
  p = hn::MulAdd(p, r, hn::Set(tag, 0.00967151299F));
  p = hn::MulAdd(p, r, hn::Set(tag, 0.0555073358F));
  p = hn::MulAdd(p, r, hn::Set(tag, 0.240222424F));
  p = hn::MulAdd(p, r, hn::Set(tag, 0.693147004F));
  p = hn::MulAdd(p, r, hn::Set(tag, 1.0F));
  const auto power = hn::BitCast(tag, hn::ShiftLeft<23>(hn::BitCast(whole, shifted)));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(tag, -126.0F)), hn::Mul(p, power));
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
