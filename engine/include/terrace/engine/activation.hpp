// Memory that the engine's arithmetic on the host and the backend's ops both reach: what passes
// between them lies here.
#pragma once

#include <span>
#include <utility>

#include "terrace/core/backend.hpp"
#include "terrace/engine/float_array.hpp"

namespace terrace::engine {

/// An array of zeros: plain memory where the device is the host, else locked host memory of the
/// backend, which the device reads and writes where it lies.
class Activation {
 public:
  Activation() = default;

  /// Errors   out_of_memory
  static Result<Activation> create(Backend& backend, std::size_t floats);

  [[nodiscard]] float* data() const noexcept { return data_; }
  [[nodiscard]] std::byte* bytes() const noexcept { return reinterpret_cast<std::byte*>(data_); }
  [[nodiscard]] std::span<const float> span() const noexcept { return {data_, size_}; }

 private:
  FloatArray plain_;
  Buffer shared_;
  float* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace terrace::engine
