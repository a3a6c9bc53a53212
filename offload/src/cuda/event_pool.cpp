#include "event_pool.hpp"

#include "support/check.hpp"

namespace terrace::offload {

using cuda::check;

EventPool::~EventPool() {
  for (const cudaEvent_t event : free_) {
    static_cast<void>(check(cudaEventDestroy(event), "ending an event"));
  }
}

Result<cudaEvent_t> EventPool::take() {
  {
    const std::scoped_lock lock(mutex_);
    if (!free_.empty()) {
      const cudaEvent_t event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  const unsigned flags = cudaEventBlockingSync | (timed_ ? 0U : cudaEventDisableTiming);
  cudaEvent_t event = nullptr;
  TERRACE_TRY(check(cudaEventCreateWithFlags(&event, flags), "making an event"));
  return event;
}

Result<cudaEvent_t> EventPool::record(cudaStream_t stream) {
  TERRACE_ASSIGN(const cudaEvent_t event, take());
  const Status recorded = check(cudaEventRecord(event, stream), "recording an event");
  if (recorded) return event;
  give(event);
  return tl::unexpected(recorded.error());
}

void EventPool::give(cudaEvent_t event) {
  const std::scoped_lock lock(mutex_);
  free_.push_back(event);
}

}  // namespace terrace::offload
