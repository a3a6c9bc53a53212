#include "terrace/offload/link.hpp"

#include <algorithm>
#include <cmath>

namespace terrace::offload {

std::optional<Link::Direction> Link::direction_of(Phase phase) noexcept {
  switch (phase) {
    case Phase::offload:
      return Direction::device_to_host;
    case Phase::fetch:
    case Phase::refill:
    case Phase::index:
      return Direction::host_to_device;
    default:
      return std::nullopt;
  }
}

TimePoint Link::reserve(Direction direction, TimePoint began, std::size_t bytes) {
  const bool unlimited = options_.bandwidth_bytes_per_second <= 0;
  if (unlimited && options_.latency == Duration{}) return began;
  const double transfer_ns =
      unlimited ? 0 : 1e9 * static_cast<double>(bytes) / options_.bandwidth_bytes_per_second;
  const std::scoped_lock lock(mutex_);
  TimePoint& free_at = free_at_[static_cast<std::size_t>(direction)];
  free_at = std::max(free_at, began) + options_.latency +
            Duration{static_cast<Duration::rep>(std::ceil(transfer_ns))};
  return free_at;
}

}  // namespace terrace::offload
