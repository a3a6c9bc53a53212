// How fast something is done, as it was measured lately.
#pragma once

#include <mutex>
#include <optional>

#include "terrace/core/clock.hpp"

namespace terrace {

/// Threads  safe from any thread
class MeasuredRate {
 public:
  /// Measurements count for so long: what is not done any more may have become faster.
  explicit MeasuredRate(Duration lifetime = Duration::max()) noexcept : lifetime_(lifetime) {}

  /// So much took so long, and has ended now. Later measurements weigh more.
  void note(double amount, Duration took, TimePoint now) {
    if (amount <= 0 || took <= Duration::zero()) return;
    const std::lock_guard lock(mutex_);
    amount_ = amount_ / 2 + amount;
    seconds_ = seconds_ / 2 + seconds(took);
    last_ = now;
  }

  /// Returns how many seconds so much takes; nothing if that is not known.
  [[nodiscard]] std::optional<double> seconds_for(double amount, TimePoint now) const {
    const std::lock_guard lock(mutex_);
    if (amount_ == 0 || now - last_ > lifetime_) return std::nullopt;
    return amount * seconds_ / amount_;
  }

 private:
  const Duration lifetime_;
  mutable std::mutex mutex_;
  double amount_ = 0;
  double seconds_ = 0;
  TimePoint last_{};
};

}  // namespace terrace
