#include "event_pool.hpp"

#include "support/check.hpp"

namespace terrace::offload {

using cuda::check;

EventPool::~EventPool() {
  for (const EventPair& each : free_) {
    for (const cudaEvent_t event : {each.begin, each.end}) {
      static_cast<void>(check(cudaEventDestroy(event), "ending an event"));
    }
  }
}

Result<EventPair> EventPool::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      const EventPair events = free_.back();
      free_.pop_back();
      return events;
    }
  }
  EventPair events;
  TERRACE_TRY(
      check(cudaEventCreateWithFlags(&events.begin, cudaEventBlockingSync), "making an event"));
  const Status made =
      check(cudaEventCreateWithFlags(&events.end, cudaEventBlockingSync), "making an event");
  if (made) return events;
  static_cast<void>(check(cudaEventDestroy(events.begin), "ending an event"));
  return tl::unexpected(made.error());
}

void EventPool::give(const EventPair& events) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(events);
}

}  // namespace terrace::offload
