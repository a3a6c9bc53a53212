// Whether a device still works. Once it is lost, nothing of it is asked any more.
#pragma once

#include <atomic>
#include <mutex>

#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Threads  safe from any thread
class DeviceHealth {
 public:
  /// Remembers the first error that means that the device is lost; ignores all other errors.
  void note(const Error& error) {
    if (error.code != Errc::device_lost) return;
    const std::scoped_lock lock(mutex_);
    if (lost_.load(std::memory_order_relaxed)) return;
    error_ = error;
    lost_.store(true, std::memory_order_release);
  }

  /// Errors: device_lost, as it was noted.
  [[nodiscard]] Status check() const {
    if (!lost_.load(std::memory_order_acquire)) return {};
    const std::scoped_lock lock(mutex_);
    return tl::unexpected(error_);
  }

 private:
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;  ///< guards error_
  Error error_;
};

}  // namespace terrace::offload
