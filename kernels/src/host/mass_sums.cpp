#include "host/mass_sums.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/mass_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/exp-inl.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Logits from i on, -inf in places without one.
HWY_INLINE Floats logits_at(const float* logits, std::size_t count, std::size_t i) {
  const FloatTag tag;
  const auto there = hn::FirstN(tag, count > i ? count - i : 0);
  const Floats nothing = hn::Set(tag, -std::numeric_limits<float>::infinity());
  return hn::IfThenElse(there, hn::LoadU(tag, logits + i), nothing);
}

float greatest_logit(const float* logits, std::size_t count) {
  Floats greatest = hn::Set(FloatTag(), -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < count; i += lanes) {
    greatest = hn::Max(greatest, logits_at(logits, count, i));
  }
  return max_of_lanes(greatest);
}

/// exp(log - base), of what is not above the base.
HWY_INLINE Floats weight(Floats log, double base) {
  const FloatTag tag;
  const Floats below = hn::Sub(log, hn::Set(tag, static_cast<float>(base)));
  return exp2_nonpositive(hn::Mul(below, hn::Set(tag, std::numbers::log2e_v<float>)));
}

/// Adds logits that are at most estimate.base.
void add_weights(const float* logits, std::size_t count, MassEstimate& estimate) {
  Floats sum = hn::Zero(FloatTag());
  for (std::size_t i = 0; i < count; i += lanes) {
    sum = hn::Add(sum, weight(logits_at(logits, count, i), estimate.base));
  }
  estimate.sum += static_cast<double>(sum_of_lanes(sum));
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(greatest_logit);
HWY_EXPORT(add_weights);

void add_logits(const float* logits, std::size_t count, MassEstimate& estimate) noexcept {
  const double greatest{HWY_DYNAMIC_DISPATCH(greatest_logit)(logits, count)};
  if (greatest > estimate.base) {
    estimate = {.base = greatest, .sum = estimate.sum * std::exp(estimate.base - greatest)};
  }
  if (std::isfinite(estimate.base)) HWY_DYNAMIC_DISPATCH(add_weights)(logits, count, estimate);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
