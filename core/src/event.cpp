#include "terrace/core/event.hpp"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace terrace {

struct Event::State {
  std::mutex mutex;  ///< guards both below
  bool is_set = false;
  std::vector<std::function<void()>> callbacks;
  std::condition_variable set;
};

Event::Event() : state_(std::make_shared<State>()) {}

void Event::set() const {
  const std::shared_ptr<State> state = state_;  // a callback may let go of this event
  std::vector<std::function<void()>> callbacks;
  {
    const std::scoped_lock lock(state->mutex);
    state->is_set = true;
    callbacks.swap(state->callbacks);
  }
  state->set.notify_all();
  for (const auto& callback : callbacks) callback();
}

bool Event::is_set() const noexcept {
  const std::scoped_lock lock(state_->mutex);
  return state_->is_set;
}

Status Event::wait(Duration timeout) const {
  const Deadline deadline(timeout);
  std::unique_lock lock(state_->mutex);
  while (!state_->is_set) {
    const Duration left = deadline.left();
    if (left == Duration{}) return fail(Errc::not_ready, "what was waited for is not done in time");
    // A day is as good as for ever: such a time from now may be no time.
    state_->set.wait_for(lock, std::min<Duration>(left, std::chrono::hours(24)));
  }
  return {};
}

void Event::then(std::function<void()> callback) const {
  {
    const std::scoped_lock lock(state_->mutex);
    if (!state_->is_set) {
      state_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

}  // namespace terrace
