// Owned, aligned arrays of f32: weights, activations and scratch.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "terrace/core/result.hpp"

namespace terrace::engine {

/// A fixed number of floats on a cache line boundary, so that vector loads never straddle lines.
class FloatArray {
 public:
  static constexpr std::size_t alignment = 64;

  FloatArray() = default;

  /// Allocates `count` zeros.
  ///
  /// Errors   out_of_memory
  static Result<FloatArray> create(std::size_t count);

  [[nodiscard]] float* data() noexcept { return data_.get(); }
  [[nodiscard]] const float* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<float> span() noexcept { return {data(), size_}; }
  [[nodiscard]] std::span<const float> span() const noexcept { return {data(), size_}; }

 private:
  struct Free {
    void operator()(float* data) const noexcept;
  };

  std::unique_ptr<float[], Free> data_;
  std::size_t size_ = 0;
};

}  // namespace terrace::engine
