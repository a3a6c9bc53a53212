// When a server that failed is asked again: each failure in a row doubles the time.
#pragma once

#include "terrace/core/clock.hpp"

namespace terrace::offload {

struct BreakerOptions {
  Duration retry_first = std::chrono::milliseconds(100);
  Duration retry_max = std::chrono::seconds(10);
};

/// Closed until a failure; open then, until a success. While it is open, one attempt after the
/// other is made, each at its time, and nobody waits for them.
///
/// Threads  one at a time
class CircuitBreaker {
 public:
  explicit CircuitBreaker(const BreakerOptions& options) noexcept : options_(options) {}

  void succeeded() noexcept { wait_ = {}; }
  void failed(TimePoint now) noexcept;

  [[nodiscard]] bool is_open() const noexcept { return wait_ > Duration{}; }
  /// Returns when the next attempt may be made; the beginning of time while it is closed.
  [[nodiscard]] TimePoint next_attempt() const noexcept { return is_open() ? next_ : TimePoint{}; }

 private:
  BreakerOptions options_;
  Duration wait_{};
  TimePoint next_{};
};

}  // namespace terrace::offload
