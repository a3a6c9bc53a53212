// An imitated link between device and host: full duplex, one transfer at a time each way.
#pragma once

#include <array>
#include <cstddef>
#include <mutex>
#include <optional>

#include "terrace/core/clock.hpp"
#include "terrace/core/queue.hpp"

namespace terrace::offload {

struct LinkOptions {
  double bandwidth_bytes_per_second = 0;  ///< each way; 0 = unlimited
  Duration latency{};                     ///< of each transfer
};

/// Threads  safe from any thread
class Link {
 public:
  enum class Direction : std::uint8_t { device_to_host, host_to_device };

  explicit Link(const LinkOptions& options) noexcept : options_(options) {}

  /// Returns the way that transfers of a phase take, or nothing for phases that compute.
  static std::optional<Direction> direction_of(Phase phase) noexcept;

  /// Books a transfer that asked for its direction at `began`; returns when it ends: latency and
  /// bytes / bandwidth after the direction was free. Without bandwidth and latency that is `began`.
  TimePoint reserve(Direction direction, TimePoint began, std::size_t bytes);

 private:
  LinkOptions options_;
  std::mutex mutex_;
  std::array<TimePoint, 2> free_at_{};
};

}  // namespace terrace::offload
