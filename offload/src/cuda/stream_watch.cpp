#include "stream_watch.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <exception>

#include "device_scope.hpp"
#include "queue/spin.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::offload {
namespace {

constexpr Duration pause_first = std::chrono::microseconds(5);
constexpr Duration pause_most = std::chrono::microseconds(50);

}  // namespace

Result<std::unique_ptr<StreamWatch>> StreamWatch::create(int device, Duration spin) {
  std::unique_ptr<StreamWatch> watch(new StreamWatch(device, spin));
  try {
    watch->thread_ = Thread([self = watch.get()] { self->serve(); });
    watch->thread_.set_name("streams");
  } catch (const std::exception&) {
    return fail(Errc::out_of_memory, "the system has no thread left to watch streams");
  }
  return watch;
}

StreamWatch::~StreamWatch() {
  if (!thread_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    TERRACE_ASSERT(busy_.empty());
    ending_ = true;
  }
  announced_.notify_one();
  thread_.join();
}

void StreamWatch::announce(WatchedStream& stream) {
  bool wake = false;
  {
    const std::scoped_lock lock(mutex_);
    busy_.push_back(&stream);
    announcements_.fetch_add(1, std::memory_order_relaxed);
    wake = asleep_;
  }
  if (wake) announced_.notify_one();
}

void StreamWatch::leave(WatchedStream& stream) {
  std::unique_lock lock(mutex_);
  looked_.wait(lock, [&] { return looking_at_ != &stream; });
  std::erase(busy_, &stream);
}

void StreamWatch::serve() {
  // Pauses are of microseconds: the default timer slack of 50 us would be most of them.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  const DeviceScope device(device_);
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (look_at_all(lock)) {
      last_seen_ = std::chrono::steady_clock::now();
      pause_ = pause_first;
    } else {
      rest(lock);
    }
  }
}

bool StreamWatch::look_at_all(std::unique_lock<std::mutex>& lock) {
  bool seen = false;
  for (std::size_t left = busy_.size(); left > 0 && !busy_.empty(); --left) {
    WatchedStream* const stream = busy_.front();
    busy_.pop_front();
    looking_at_ = stream;
    lock.unlock();
    seen = stream->look_once() || seen;
    const bool again = stream->keep_watching();
    lock.lock();
    looking_at_ = nullptr;
    if (again) busy_.push_back(stream);
    looked_.notify_all();
  }
  return seen;
}

void StreamWatch::rest(std::unique_lock<std::mutex>& lock) {
  const TimePoint lie_down = last_seen_ + spin_;
  if (std::chrono::steady_clock::now() < lie_down) {
    // Without the mutex, which announcing takes.
    const std::uint32_t seen = announcements_.load(std::memory_order_relaxed);
    const TimePoint until = busy_.empty() ? lie_down : TimePoint{};
    lock.unlock();
    spin_until([&] { return announcements_.load(std::memory_order_relaxed) != seen; }, until);
    lock.lock();
  } else if (busy_.empty()) {
    asleep_ = true;
    announced_.wait(lock, [this] { return ending_ || !busy_.empty(); });
    asleep_ = false;
    last_seen_ = std::chrono::steady_clock::now();
    pause_ = pause_first;
  } else {
    announced_.wait_for(lock, pause_, [this] { return ending_; });
    pause_ = std::min(2 * pause_, pause_most);
  }
}

}  // namespace terrace::offload
