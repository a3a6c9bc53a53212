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
  Floats score;
  Floats most;
  Floats least;
  Floats even;
};

HWY_INLINE LogTerms log_terms(const MassTerms& terms, const MassQuery& query, std::size_t i) {
  const FloatTag tag;
  const auto there = hn::FirstN(tag, terms.count > i ? terms.count - i : 0);
  const Floats nothing = hn::Set(tag, -std::numeric_limits<float>::infinity());
  const Floats score = hn::IfThenElse(there, hn::LoadU(tag, query.scores + i), nothing);
  const Floats whole = hn::Load(tag, &terms.whole[i]);
  const Floats variance = hn::Load(tag, &terms.variance[i]);
  const Floats norm = hn::Set(tag, query.norm);
  const Floats radius = hn::Mul(norm, hn::Load(tag, &terms.radius[i]));
  const Floats rounding = hn::Mul(hn::Mul(norm, whole), hn::Load(tag, &terms.rounding[i]));
  const Floats spread =
      hn::Min(hn::Mul(hn::Set(tag, 0.5F * query.square), variance), hn::Set(tag, query.spread_max));
  const Floats middle = hn::Sub(score, spread);
  return {.score = score,
          .most = hn::Add(middle, hn::MulAdd(hn::Set(tag, 2.0F), rounding, radius)),
          .least = hn::Sub(middle, radius),
          .even = hn::Sub(middle, rounding)};
}

float greatest_term(const MassTerms& terms, const MassQuery& query) {
  const FloatTag tag;
  Floats greatest = hn::Set(tag, -std::numeric_limits<float>::infinity());
  for (std::size_t i = 0; i < MassTerms::size_max; i += lanes) {
    const LogTerms of = log_terms(terms, query, i);
    greatest = hn::Max(greatest, hn::Max(of.most, of.score));
  }
  return max_of_lanes(greatest);
}

/// Adds terms, none above sums.base.
void add_terms(const MassTerms& terms, const MassQuery& query, MassSums& sums) {
  const FloatTag tag;
  const Floats base = hn::Set(tag, static_cast<float>(sums.base));
  const Floats log2_e = hn::Set(tag, std::numbers::log2e_v<float>);
  const Floats half = hn::Set(tag, 0.5F);
  Floats low = hn::Zero(tag);
  Floats high = hn::Zero(tag);
  Floats estimate = hn::Zero(tag);
  const auto weight = [&](Floats log) HWY_ATTR {
    return exp2_nonpositive(hn::Mul(hn::Sub(log, base), log2_e));
  };
  for (std::size_t i = 0; i < MassTerms::size_max; i += lanes) {
    const LogTerms of = log_terms(terms, query, i);
    const Floats most = weight(of.most);
    const Floats least = weight(of.least);
    const auto whole = hn::Gt(hn::Load(tag, &terms.whole[i]), hn::Zero(tag));
    const Floats mean = hn::Mul(half, hn::Add(most, least));
    low = hn::Add(low, hn::IfThenElse(whole, weight(of.even), least));
    high = hn::Add(high, hn::IfThenElse(whole, mean, most));
    estimate = hn::Add(estimate, weight(of.score));
  }
  sums.low += static_cast<double>(sum_of_lanes(low));
  sums.high += static_cast<double>(sum_of_lanes(high));
  sums.estimate += static_cast<double>(sum_of_lanes(estimate));
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(greatest_term);
HWY_EXPORT(add_terms);

void add_mass(const MassTerms& terms, const MassQuery& query, MassSums& sums) noexcept {
  const double greatest{HWY_DYNAMIC_DISPATCH(greatest_term)(terms, query)};
  if (greatest > sums.base) {
    const double factor = std::exp(sums.base - greatest);
    sums = {.base = greatest,
            .low = sums.low * factor,
            .high = sums.high * factor,
            .estimate = sums.estimate * factor};
  }
  if (std::isfinite(sums.base)) HWY_DYNAMIC_DISPATCH(add_terms)(terms, query, sums);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
