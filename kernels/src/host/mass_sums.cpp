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

/// Logarithms of what a vector of clusters weighs. With a cosh written out, the most that a whole
/// cluster can weigh is the mean of `most` and `least`, and the least is `even`; of a part of a
/// cluster they are `most` and `least` themselves.
struct LogTerms {
  Floats most;
  Floats least;
  Floats even;
};

/// Logits from i on, -inf in places without one.
HWY_INLINE Floats logits_at(const float* logits, std::size_t count, std::size_t i) {
  const FloatTag tag;
  const auto there = hn::FirstN(tag, count > i ? count - i : 0);
  const Floats nothing = hn::Set(tag, -std::numeric_limits<float>::infinity());
  return hn::IfThenElse(there, hn::LoadU(tag, logits + i), nothing);
}

HWY_INLINE LogTerms log_terms(const MassTerms& terms, const MassQuery& query, std::size_t i) {
  const FloatTag tag;
  const Floats whole = hn::Load(tag, &terms.whole[i]);
  const Floats variance = hn::Load(tag, &terms.variance[i]);
  const Floats norm = hn::Set(tag, query.norm);
  const Floats radius = hn::Mul(norm, hn::Load(tag, &terms.radius[i]));
  const Floats rounding = hn::Mul(hn::Mul(norm, whole), hn::Load(tag, &terms.rounding[i]));
  const Floats spread =
      hn::Min(hn::Mul(hn::Set(tag, 0.5F * query.square), variance), hn::Set(tag, query.spread_max));
  const Floats middle = hn::Sub(logits_at(query.scores, terms.count, i), spread);
  return {.most = hn::Add(middle, hn::MulAdd(hn::Set(tag, 2.0F), rounding, radius)),
          .least = hn::Sub(middle, radius),
          .even = hn::Sub(middle, rounding)};
}

float greatest_term(const MassTerms& terms, const MassQuery& query) {
  Floats greatest = hn::Set(FloatTag(), -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < MassTerms::size_max; i += lanes) {
    greatest = hn::Max(greatest, log_terms(terms, query, i).most);
  }
  return max_of_lanes(greatest);
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

/// Adds terms, none above sums.base.
void add_terms(const MassTerms& terms, const MassQuery& query, MassSums& sums) {
  const FloatTag tag;
  const Floats half = hn::Set(tag, 0.5F);
  Floats low = hn::Zero(tag);
  Floats high = hn::Zero(tag);
  for (std::size_t i = 0; i < MassTerms::size_max; i += lanes) {
    const LogTerms of = log_terms(terms, query, i);
    const Floats most = weight(of.most, sums.base);
    const Floats least = weight(of.least, sums.base);
    const auto whole = hn::Gt(hn::Load(tag, &terms.whole[i]), hn::Zero(tag));
    const Floats mean = hn::Mul(half, hn::Add(most, least));
    low = hn::Add(low, hn::IfThenElse(whole, weight(of.even, sums.base), least));
    high = hn::Add(high, hn::IfThenElse(whole, mean, most));
  }
  sums.low += static_cast<double>(sum_of_lanes(low));
  sums.high += static_cast<double>(sum_of_lanes(high));
}

/// Adds logits, none above estimate.base.
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

HWY_EXPORT(greatest_term);
HWY_EXPORT(greatest_logit);
HWY_EXPORT(add_terms);
HWY_EXPORT(add_weights);

void add_mass(const MassTerms& terms, const MassQuery& query, MassSums& sums) noexcept {
  const double greatest{HWY_DYNAMIC_DISPATCH(greatest_term)(terms, query)};
  if (greatest > sums.base) {
    const double factor = std::exp(sums.base - greatest);
    sums = {.base = greatest, .low = sums.low * factor, .high = sums.high * factor};
  }
  if (std::isfinite(sums.base)) HWY_DYNAMIC_DISPATCH(add_terms)(terms, query, sums);
}

void add_logits(const float* logits, std::size_t count, MassEstimate& estimate) noexcept {
  const double greatest{HWY_DYNAMIC_DISPATCH(greatest_logit)(logits, count)};
  if (greatest > estimate.base) {
    estimate = {.base = greatest, .sum = estimate.sum * std::exp(estimate.base - greatest)};
  }
  if (std::isfinite(estimate.base)) HWY_DYNAMIC_DISPATCH(add_weights)(logits, count, estimate);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
