#include "terrace/engine/rope.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "terrace/core/assert.hpp"

namespace terrace::engine {
namespace {

std::vector<double> frequencies_of(double theta, std::size_t dims) {
  std::vector<double> frequencies(dims / 2);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(dims));
  }
  return frequencies;
}

double scale_frequency(double frequency, const Llama3RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto context = static_cast<double>(scaling.original_positions);
  if (wavelength > context / scaling.low_freq_factor) return frequency / scaling.factor;
  if (wavelength < context / scaling.high_freq_factor) return frequency;
  const double kept = (context / wavelength - scaling.low_freq_factor) /
                      (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

/// The pair, or what lies between two, that turns `turns` times in the original context.
double pair_that_turns(double turns, const ModelConfig& config, std::size_t positions) {
  return static_cast<double>(config.rotated_dims()) *
         std::log(static_cast<double>(positions) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(config.rope_theta));
}

/// Scales unscaled frequencies in place, and returns the factor of cosines and sines.
struct Scale {
  const ModelConfig& config;
  std::size_t length;
  std::vector<double>& frequencies;

  double operator()(const std::monostate&) const { return 1; }

  double operator()(const LinearRopeScaling& scaling) const {
    for (double& frequency : frequencies) frequency /= scaling.factor;
    return 1;
  }

  double operator()(const DynamicRopeScaling& scaling) const {
    const auto most = static_cast<double>(config.positions_max);
    const double positions = std::max(static_cast<double>(length), most);
    const auto dim = static_cast<double>(config.rotated_dims());
    const double growth =
        std::pow(scaling.factor * positions / most - (scaling.factor - 1), dim / (dim - 2));
    frequencies = frequencies_of(config.rope_theta * growth, config.rotated_dims());
    return 1;
  }

  double operator()(const Llama3RopeScaling& scaling) const {
    for (double& frequency : frequencies) frequency = scale_frequency(frequency, scaling);
    return 1;
  }

  double operator()(const YarnRopeScaling& scaling) const {
    double low = pair_that_turns(scaling.beta_fast, config, scaling.original_positions);
    double high = pair_that_turns(scaling.beta_slow, config, scaling.original_positions);
    if (scaling.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(config.rotated_dims()) - 1);
    if (low == high) high += 0.001;
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const double stretched = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      frequencies[i] *= stretched / scaling.factor + (1 - stretched);
    }
    return scaling.attention_factor;
  }

  double operator()(const LongRopeScaling& scaling) const {
    const auto& divisors =
        length > scaling.original_positions ? scaling.long_factors : scaling.short_factors;
    for (std::size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors[i];
    return scaling.attention_factor;
  }
};

}  // namespace

Rope::Rope(const ModelConfig& config, std::size_t length)
    : frequencies_(frequencies_of(config.rope_theta, config.rotated_dims())),
      attention_factor_(std::visit(Scale{config, length, frequencies_}, config.rope_scaling)) {}

Result<RopeAngles> RopeAngles::create(std::size_t rows_max, std::size_t pairs) {
  RopeAngles angles;
  TERRACE_ASSIGN(angles.cosines_, FloatArray::create(rows_max * pairs));
  TERRACE_ASSIGN(angles.sines_, FloatArray::create(rows_max * pairs));
  angles.pairs_ = pairs;
  return angles;
}

void RopeAngles::prepare(const Rope& rope, std::size_t first_position, std::size_t rows) noexcept {
  if (first_position == first_position_ && rows <= rows_) return;
  TERRACE_ASSERT(rope.pairs() == pairs_ && rows * pairs_ <= cosines_.size());
  const double factor = rope.attention_factor();
  for (std::size_t r = 0; r < rows; ++r) {
    const auto position = static_cast<double>(first_position + r);
    for (std::size_t i = 0; i < pairs_; ++i) {
      const double angle = position * rope.frequency(i);
      cosines_.data()[r * pairs_ + i] = static_cast<float>(std::cos(angle) * factor);
      sines_.data()[r * pairs_ + i] = static_cast<float>(std::sin(angle) * factor);
    }
  }
  first_position_ = first_position;
  rows_ = rows;
}

}  // namespace terrace::engine
