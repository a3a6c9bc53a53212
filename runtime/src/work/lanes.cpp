#include "lanes.hpp"

#include "terrace/core/clock.hpp"

namespace terrace {

Result<Lanes> Lanes::open(Backend& backend, bool refreshes) {
  Lanes lanes;
  TERRACE_ASSIGN(lanes.queues_[0], backend.make_queue({.name = "offload", .lane = "offload"}));
  TERRACE_ASSIGN(lanes.queues_[1], backend.make_queue({.name = "index", .lane = "index"}));
  TERRACE_ASSIGN(lanes.queues_[2], backend.make_queue({.name = "refill", .lane = "refill"}));
  TERRACE_ASSIGN(lanes.queues_[3], backend.make_host_queue({.name = "cluster", .lane = "cluster"}));
  if (refreshes) {
    TERRACE_ASSIGN(lanes.queues_[4],
                   backend.make_host_queue({.name = "refresh", .lane = "refresh"}));
  }
  return lanes;
}

Lanes::Rest Lanes::settle(Queue* compute, Duration patience) const {
  Rest rest;
  const Deadline all(patience);
  // All must have stopped before one is cleared: a queue may still wait for a failed one.
  if (compute != nullptr) static_cast<void>(compute->drain(all.left()));
  for (const std::unique_ptr<Queue>& queue : queues_) {
    if (queue != nullptr) static_cast<void>(queue->drain(all.left()));
  }
  if (step_ != nullptr) static_cast<void>(step_->drain(all.left()));
  const auto clear = [&](Queue& queue) {
    const Status drained = queue.drain(all.left());
    const bool late = !drained && drained.error().code == Errc::not_ready;
    rest.failed = rest.failed || (!drained && !late);
    rest.at_rest = rest.at_rest && !late && queue.clear_error();
    return !late;
  };
  if (compute != nullptr) rest.compute_ended = clear(*compute);
  for (const std::unique_ptr<Queue>& queue : queues_) {
    if (queue != nullptr) clear(*queue);
  }
  if (step_ != nullptr) clear(*step_);
  return rest;
}

Status check_compute(Backend& backend, Queue& compute) {
  if (&compute.threads() == &backend.device_threads()) return {};
  return fail(Errc::invalid_argument,
              "queue {} is not one of this runtime's device; make it with Runtime::backend()",
              compute.name());
}

}  // namespace terrace
