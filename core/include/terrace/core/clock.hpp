// Time, passed in: production reads the steady clock, tests and the simulator own theirs.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace terrace {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  [[nodiscard]] virtual TimePoint now() const noexcept = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
};

/// Stands still until told to move. Safe from any thread.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override {
    return TimePoint{Duration{nanoseconds_.load(std::memory_order_acquire)}};
  }
  void advance(Duration by) noexcept {
    nanoseconds_.fetch_add(by.count(), std::memory_order_acq_rel);
  }

 private:
  std::atomic<Duration::rep> nanoseconds_{0};
};

/// One length of time that several waits share. The clock must outlive it.
class Deadline {
 public:
  Deadline(const Clock& clock, Duration patience) : clock_(clock), end_(clock.now() + patience) {}

  /// Returns what the next wait may take; zero once the time is over.
  [[nodiscard]] Duration left() const noexcept {
    return std::max(Duration::zero(), end_ - clock_.now());
  }

 private:
  const Clock& clock_;
  TimePoint end_;
};

/// Returns seconds as a double, for reports.
inline double seconds(Duration duration) noexcept {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace terrace
