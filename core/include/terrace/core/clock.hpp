// Time, passed in: production reads the steady clock, tests own theirs.
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

/// A length of time that several waits share. Waits are in steady time.
class Deadline {
 public:
  explicit Deadline(Duration patience) noexcept {
    const TimePoint now = std::chrono::steady_clock::now();
    end_ = patience > TimePoint::max() - now ? TimePoint::max() : now + patience;
  }

  /// Returns what the next wait may take; zero once the time is over.
  [[nodiscard]] Duration left() const noexcept {
    return std::max(Duration::zero(), end_ - std::chrono::steady_clock::now());
  }

 private:
  TimePoint end_;
};

/// Returns seconds as a double, for reports.
inline double seconds(Duration duration) noexcept {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace terrace
