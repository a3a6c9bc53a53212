#include "pause.hpp"

#include "spin.hpp"

namespace terrace::offload {

void Pause::until(TimePoint time) {
  // A sleeper wakes tens of microseconds late, and a link would seem slower by that.
  constexpr Duration wake_up = std::chrono::microseconds{100};
  {
    std::unique_lock lock(mutex_);
    if (ended_.wait_until(lock, time - wake_up, [this] { return over_; })) return;
  }
  spin_until([] { return false; }, time);
}

void Pause::cut_short() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
}

}  // namespace terrace::offload
