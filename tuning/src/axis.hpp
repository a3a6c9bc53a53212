// The scale of a drawing's axis: where values lie, and how the numbers at it are written.
#pragma once

#include <cmath>
#include <string>

#include "terrace/tuning/chart.hpp"

namespace terrace::tuning {

class Axis {
 public:
  /// From `least` to `largest`, in the unit of `axis`, with about `steps_wanted` round steps. 0 is
  /// on it, but for doubling steps, and for shares that are all large.
  Axis(const ChartAxis& axis, double least, double largest, int steps_wanted = 5);

  /// Returns where a value lies: 0 = at the begin, 1 = at the end.
  [[nodiscard]] double share(double value) const;

  [[nodiscard]] int steps() const noexcept { return steps_; }

  /// Returns the share of a step, from 0 to steps().
  [[nodiscard]] double share_of_step(int step) const { return double(step) / steps_; }

  [[nodiscard]] std::string text_of_step(int step) const;

  /// Returns the value of a step, in the unit of the axis as it was given.
  [[nodiscard]] double value_of_step(int step) const noexcept {
    return axis_.doubling ? std::exp2(low_ + step_ * step) : divisor_ * (low_ + step_ * step);
  }

  /// Returns a value with its unit, for words in a sentence.
  [[nodiscard]] std::string text(double value) const;

  /// Returns the label and the unit: "capacity, tokens".
  [[nodiscard]] std::string label() const;

 private:
  [[nodiscard]] double placed(double value) const;

  ChartAxis axis_;
  double divisor_ = 1;
  std::string unit_;
  double low_ = 0;  ///< in units written, or the power of two
  double step_ = 1;
  int steps_ = 1;
};

}  // namespace terrace::tuning
