// Processor time of this process.
#pragma once

#include <sys/resource.h>

namespace terrace::bench {

/// Returns the seconds, user and system, that all threads of the process have taken.
inline double cpu_seconds() noexcept {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return in_seconds(usage.ru_utime) + in_seconds(usage.ru_stime);
}

}  // namespace terrace::bench
