#include "doubles/fault_store.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

#include "queue/progress.hpp"
#include "storage/store_errors.hpp"

namespace terrace::doubles {

using offload::deadline_after;

void FaultStore::arm(const StoreFaultPlan& plan) {
  const std::scoped_lock lock(mutex_);
  plan_ = plan;
  rng_ = Rng(plan.seed);
  seen_ = 0;
}

Result<StoreTicket> FaultStore::submit(std::span<PageRequest> batch) {
  TERRACE_TRY(offload::check_batch(name(), batch));
  const std::scoped_lock lock(mutex_);
  if (pending_.size() >= plan_.batches_max) {
    return fail(Errc::out_of_memory, "store {}: {} batches are under way", name(), pending_.size());
  }
  pending_.push_back(
      {.number = ++batches_, .begins_at = deadline_after(plan_.delay), .requests = batch});
  return StoreTicket{batches_};
}

Result<bool> FaultStore::poll(StoreTicket ticket) {
  const std::scoped_lock lock(mutex_);
  if (ticket.number > batches_) return offload::unknown_batch(name(), ticket);
  run_due(ticket.number);
  return !pending(ticket.number);
}

Status FaultStore::wait(StoreTicket ticket, Duration timeout) {
  const TimePoint deadline = deadline_after(timeout);
  while (true) {
    TERRACE_ASSIGN(const bool done, poll(ticket));
    if (done) return {};
    TimePoint next;
    {
      const std::scoped_lock lock(mutex_);
      if (pending_.empty()) continue;  // another thread's poll ran it
      next = std::min(deadline, pending_.front().begins_at);
      if (std::chrono::steady_clock::now() >= deadline) {
        cancel(ticket.number);
        return fail(Errc::not_ready, "store {}: batch {} is not done in time", name(),
                    ticket.number);
      }
    }
    // tidy-allow(library_calls): a made-to-order delay is real time
    std::this_thread::sleep_until(next);
  }
}

void FaultStore::run_due(std::uint64_t up_to) {
  const TimePoint now = std::chrono::steady_clock::now();
  while (!pending_.empty() && pending_.front().number <= up_to &&
         pending_.front().begins_at <= now) {
    const std::span<PageRequest> requests = pending_.front().requests;
    pending_.pop_front();
    run(requests);
  }
}

void FaultStore::run(std::span<PageRequest> requests) {
  // Requests are made one by one, so that a failed request leaves the others of its batch in order.
  for (PageRequest& request : requests) {
    if (fails(request)) {
      request.status = fail(plan_.error, "fault injected: page {:016x}{:016x}, request {}",
                            request.key.high, request.key.low, seen_);
      continue;
    }
    const auto inner = inner_->submit({&request, 1});
    const Status done = inner ? inner_->wait(*inner, std::chrono::seconds(30))
                              : Status(tl::unexpected(inner.error()));
    if (!done) request.status = done;
  }
}

bool FaultStore::fails(const PageRequest& request) {
  if (request.verb != plan_.verb) return false;
  ++seen_;
  return seen_ == plan_.nth || (plan_.probability > 0 && rng_.uniform() < plan_.probability);
}

void FaultStore::cancel(std::uint64_t number) {
  const auto batch = std::ranges::find(pending_, number, &Batch::number);
  if (batch == pending_.end()) return;
  for (PageRequest& request : batch->requests) {
    request.status =
        fail(Errc::cancelled, "store {}: the batch was given up at its deadline", name());
  }
  pending_.erase(batch);
}

bool FaultStore::pending(std::uint64_t number) const {
  return std::ranges::find(pending_, number, &Batch::number) != pending_.end();
}

}  // namespace terrace::doubles
