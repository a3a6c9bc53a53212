#include "circuit_breaker.hpp"

#include <algorithm>

namespace terrace::offload {

void CircuitBreaker::failed(TimePoint now) noexcept {
  // Half of the most can be doubled without overflow, whatever the most is.
  const bool is_half = wait_ > options_.retry_max / 2;
  wait_ = !is_open() ? std::min(options_.retry_first, options_.retry_max)
          : is_half  ? options_.retry_max
                     : wait_ * 2;
  next_ = wait_ < TimePoint::max() - now ? now + wait_ : TimePoint::max();
}

}  // namespace terrace::offload
