// A brief spin before sleep: handing work over between two running threads takes well under a
// microsecond, waking a sleeping one many.
#pragma once

#include <chrono>
#include <thread>

#include "terrace/core/clock.hpp"

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace terrace::offload {

inline void pause_cpu() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// Tries `condition` until it holds or `deadline` has passed. Returns whether it held.
template <typename Condition>
bool spin_until(Condition condition, TimePoint deadline) {
  constexpr int tries_per_clock_read = 16;
  do {
    for (int i = 0; i < tries_per_clock_read; ++i) {
      if (condition()) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return condition();
}

}  // namespace terrace::offload
