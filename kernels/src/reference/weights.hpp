// The rules that all references of selections follow: odd logits and their order, as SelectCommon
// has them.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::reference {

inline constexpr double minus_infinity = -std::numeric_limits<double>::infinity();

/// NaN counts as -inf, +inf as the largest float.
inline double limit(double logit) {
  if (std::isnan(logit)) return minus_infinity;
  return std::min(logit, double{std::numeric_limits<float>::max()});
}

/// Whether a weight comes before another: NaN ranks below -inf.
inline bool is_above(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(b) && !std::isnan(a);
  return a > b;
}

/// Makes limited logits their softmax; all 0 if all are -inf.
inline void softmax(std::vector<double>& logits) {
  double maximum = minus_infinity;
  for (const double logit : logits) maximum = std::max(maximum, logit);
  if (maximum == minus_infinity) maximum = 0;
  double sum = 0;
  for (double& logit : logits) {
    logit = std::exp(logit - maximum);
    sum += logit;
  }
  if (sum > 0) {
    for (double& logit : logits) logit /= sum;
  }
}

/// Makes the logits of a query head what it adds to weights: their softmax, or they themselves,
/// limited; all 0 if all are -inf.
inline void make_addends(std::vector<double>& logits, GroupReduction reduction) {
  for (double& logit : logits) logit = limit(logit);
  if (reduction != GroupReduction::sum_logits) return softmax(logits);
  const bool lost = std::ranges::all_of(logits, [](double one) { return one == minus_infinity; });
  if (lost) std::ranges::fill(logits, 0.0);
}

/// Returns a candidate's weight with that of one more query head. Sums of logits are limited, too:
/// beyond all floats they would meet -inf and be NaN.
inline double merged(double before, double own, GroupReduction reduction) {
  switch (reduction) {
    case GroupReduction::sum_softmax:
      return before + own;
    case GroupReduction::max_softmax:
      return std::max(before, own);
    case GroupReduction::sum_logits:
      return limit(before + own);
  }
  return before;
}

}  // namespace terrace::kernels::reference
