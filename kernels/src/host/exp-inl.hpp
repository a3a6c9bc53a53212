// The exponential to the base 2 of numbers that are not positive: all that a softmax needs.
#if defined(TERRACE_KERNELS_EXP_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_EXP_INL
#undef TERRACE_KERNELS_EXP_INL
#else
#define TERRACE_KERNELS_EXP_INL
#endif

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Returns 2^x for x <= 0, relatively wrong by less than 2e-7; 0 below -126, where the result would
/// be denormal. NaN stays NaN.
///
/// x = n + r with |r| <= 1/2. Adding 1.5 * 2^23 leaves no bits after the binary point, so that the
/// sum is rounded to n, and 127 more makes its low bits the exponent of 2^n. 2^r is the polynomial
/// of degree 5 whose largest error is least.
template <typename Vector>
HWY_INLINE Vector exp2_nonpositive(Vector x) {
  const hn::DFromV<Vector> tag;
  const hn::RebindToSigned<hn::DFromV<Vector>> whole;
  const Vector shift = hn::Set(tag, 12582912.0F + 127.0F);
  const Vector shifted = hn::Add(x, shift);
  const Vector r = hn::Sub(x, hn::Sub(shifted, shift));
  Vector p = hn::Set(tag, 0.00132647273F);
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
