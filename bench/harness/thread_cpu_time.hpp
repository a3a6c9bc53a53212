// Processor time of the calling thread.
#pragma once

#include <ctime>

#include "terrace/core/clock.hpp"

namespace terrace::bench {

/// Returns the time, user and system, that the calling thread has taken.
inline Duration thread_cpu_time() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return std::chrono::duration_cast<Duration>(std::chrono::seconds{time.tv_sec} +
                                              std::chrono::nanoseconds{time.tv_nsec});
}

}  // namespace terrace::bench
