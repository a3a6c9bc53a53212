// Rotary position embedding: the angles, with the scalings of rope_scaling.hpp.
#pragma once

#include <cstddef>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/engine/float_array.hpp"
#include "terrace/engine/model_config.hpp"

namespace terrace::engine {

/// The rotation frequencies of a model: angle(position, pair) = position * frequency(pair).
/// Source: Su et al., "RoFormer", 2021; the scalings as Hugging Face's config names them.
///
/// The frequencies of "dynamic" and "longrope" depend on a length in tokens: here the length is
/// fixed, because cached keys keep their rotation. `length` 0 is a short one.
class Rope {
 public:
  Rope() = default;
  explicit Rope(const ModelConfig& config, std::size_t length = 0);

  [[nodiscard]] std::size_t pairs() const noexcept { return frequencies_.size(); }
  [[nodiscard]] double frequency(std::size_t pair) const noexcept { return frequencies_[pair]; }
  /// Cosines and sines are multiplied by it.
  [[nodiscard]] double attention_factor() const noexcept { return attention_factor_; }

 private:
  std::vector<double> frequencies_;
  double attention_factor_ = 1;
};

/// Cosines and sines of a run of consecutive positions, kept until another run is asked for: the
/// layers of a step share them. Angles are computed in double: an f32 angle is 2e-3 off at
/// position 32,768.
class RopeAngles {
 public:
  /// Errors   out_of_memory
  static Result<RopeAngles> create(std::size_t rows_max, std::size_t pairs);

  /// Makes row r the angles of position first_position + r. Free if they are there already.
  ///
  /// Limits   rows <= rows_max; allocates nothing; always asked with the same rope
  void prepare(const Rope& rope, std::size_t first_position, std::size_t rows) noexcept;

  [[nodiscard]] const float* cosine(std::size_t row) const noexcept {
    return cosines_.data() + row * pairs_;
  }
  [[nodiscard]] const float* sine(std::size_t row) const noexcept {
    return sines_.data() + row * pairs_;
  }

 private:
  FloatArray cosines_;
  FloatArray sines_;
  std::size_t pairs_ = 0;
  std::size_t first_position_ = 0;
  std::size_t rows_ = 0;
};

}  // namespace terrace::engine
