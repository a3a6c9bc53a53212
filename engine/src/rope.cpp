#include "terrace/engine/rope.hpp"

#include <cmath>
#include <numbers>

#include "terrace/core/assert.hpp"

namespace terrace::engine {
namespace {

double scale_frequency(double frequency, const Llama3RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const auto context = static_cast<double>(scaling.original_positions);
  if (wavelength > context / scaling.low_freq_factor) return frequency / scaling.factor;
  if (wavelength < context / scaling.high_freq_factor) return frequency;
  const double kept = (context / wavelength - scaling.low_freq_factor) /
                      (scaling.high_freq_factor - scaling.low_freq_factor);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

}  // namespace

Rope::Rope(const ModelConfig& config) : frequencies_(config.head_dim / 2) {
  for (std::size_t i = 0; i < frequencies_.size(); ++i) {
    const double exponent = 2 * static_cast<double>(i) / static_cast<double>(config.head_dim);
    const double frequency = std::pow(config.rope_theta, -exponent);
    frequencies_[i] =
        config.rope_scaling ? scale_frequency(frequency, *config.rope_scaling) : frequency;
  }
}

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
  for (std::size_t r = 0; r < rows; ++r) {
    const auto position = static_cast<double>(first_position + r);
    for (std::size_t i = 0; i < pairs_; ++i) {
      const double angle = position * rope.frequency(i);
      cosines_.data()[r * pairs_ + i] = static_cast<float>(std::cos(angle));
      sines_.data()[r * pairs_ + i] = static_cast<float>(std::sin(angle));
    }
  }
  first_position_ = first_position;
  rows_ = rows;
}

}  // namespace terrace::engine
