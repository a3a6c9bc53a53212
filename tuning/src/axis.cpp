#include "axis.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string_view>

#include "terrace/core/bytes.hpp"

namespace terrace::tuning {
namespace {

struct Unit {
  double size;
  std::string_view name;
};

// From the largest down; the last serves all that is smaller.
constexpr std::array seconds_units{Unit{1, "s"}, Unit{1e-3, "ms"}, Unit{1e-6, "µs"}};
constexpr std::array traffic_units{Unit{1e9, "GB"}, Unit{1e6, "MB"}, Unit{1e3, "kB"}};
constexpr std::array memory_units{Unit{0x1p30, "GiB"}, Unit{0x1p20, "MiB"}, Unit{0x1p10, "KiB"}};
constexpr std::array rate_units{Unit{1e9, "GB/s"}, Unit{1e6, "MB/s"}};
constexpr std::array token_units{Unit{1, "tokens"}};
constexpr std::array share_units{Unit{0.01, "%"}};
constexpr std::array percent_units{Unit{1, "%"}};
constexpr std::array number_units{Unit{1, ""}};

std::span<const Unit> units_of(AxisUnit unit) {
  switch (unit) {
    case AxisUnit::tokens:
      return token_units;
    case AxisUnit::share:
      return share_units;
    case AxisUnit::percent:
      return percent_units;
    case AxisUnit::seconds:
      return seconds_units;
    case AxisUnit::traffic_bytes:
      return traffic_units;
    case AxisUnit::memory_bytes:
      return memory_units;
    case AxisUnit::bytes_per_second:
      return rate_units;
    case AxisUnit::number:
      break;
  }
  return number_units;
}

/// The largest unit that the value is no smaller than.
Unit unit_for(AxisUnit unit, double value) {
  const std::span<const Unit> units = units_of(unit);
  for (const Unit& one : units) {
    if (value >= one.size) return one;
  }
  return units.back();
}

/// The smallest of 1, 2, 5 times a power of ten that is no less than `rough`.
double round_step(double rough) {
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

/// "12,500", "0.25".
std::string number_text(double value) {
  std::string digits = fmt::format("{:.5g}", value);
  if (digits.find_first_of(".e") != std::string::npos) return digits;
  for (std::size_t at = digits.size(); at > 3 && digits[at - 4] != '-';) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

}  // namespace

Axis::Axis(const ChartAxis& axis, double least, double largest, int steps_wanted) : axis_(axis) {
  if (axis.doubling) {
    low_ = std::floor(std::log2(std::max(1.0, least)));
    const double high = std::max(low_ + 1, std::ceil(std::log2(std::max(1.0, largest))));
    step_ = std::max(1.0, std::ceil((high - low_) / steps_wanted));
    steps_ = static_cast<int>(std::ceil((high - low_) / step_));
    return;
  }
  // Shares that are all large lie close together: their axis need not begin at 0.
  const bool from_zero = axis.unit != AxisUnit::share || least < 0.6 * largest || least == largest;
  if (from_zero) least = std::min(least, 0.0);
  largest = std::max(largest, 0.0);
  const Unit unit = unit_for(axis.unit, std::max(largest, -least));
  divisor_ = unit.size;
  unit_ = unit.name;
  if (!(largest > least)) return;
  step_ = round_step((largest - least) / divisor_ / steps_wanted);
  const bool whole = axis.unit == AxisUnit::tokens;
  if (whole) step_ = std::max(step_, 1.0);
  // A value that is a step but for rounding needs no further step.
  constexpr double tolerance = 1e-9;
  const double first = std::floor(least / divisor_ / step_ + tolerance);
  const double last = std::ceil(largest / divisor_ / step_ - tolerance);
  low_ = first * step_;
  steps_ = std::max(1, static_cast<int>(last - first));
}

double Axis::placed(double value) const {
  return axis_.doubling ? std::log2(std::max(1.0, value)) : value / divisor_;
}

double Axis::share(double value) const { return (placed(value) - low_) / (step_ * steps_); }

std::string Axis::text_of_step(int step) const {
  const double value = low_ + step_ * step;
  if (axis_.doubling) return format_size(std::size_t{1} << std::lround(value));
  return number_text(std::round(value / step_) * step_);
}

std::string Axis::text(double value) const {
  if (axis_.doubling) return format_size(static_cast<std::size_t>(std::lround(value)));
  const std::string digits = number_text(std::stod(fmt::format("{:.4g}", value / divisor_)));
  return unit_.empty() ? digits : fmt::format("{} {}", digits, unit_);
}

std::string Axis::label() const {
  if (unit_.empty() || axis_.label.ends_with(unit_)) return axis_.label;
  return axis_.label.empty() ? unit_ : fmt::format("{}, {}", axis_.label, unit_);
}

}  // namespace terrace::tuning
