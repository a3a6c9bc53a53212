#include "doubles/fault_store.hpp"

#include <algorithm>
#include <chrono>

#include "storage/store_errors.hpp"

namespace terrace::doubles {

void FaultStore::arm(const StoreFaultPlan& plan) {
  const std::scoped_lock lock(mutex_);
  plan_ = plan;
  rng_ = Rng(plan.seed);
  seen_ = 0;
}

Result<StoreTicket> FaultStore::do_submit(std::span<PageRequest> batch,
                                          const BatchOptions& options) {
  TERRACE_TRY(offload::check_batch(name(), batch));
  StoreTicket ticket;
  bool holds = false;
  {
    const std::scoped_lock lock(mutex_);
    if (pending_.size() >= plan_.batches_max) {
      return fail(Errc::out_of_memory, "store {}: {} batches are under way", name(),
                  pending_.size());
    }
    ticket.number = ++batches_;
    holds = plan_.holds;
    pending_.push_back({.ticket = ticket, .options = options, .requests = batch});
  }
  if (!holds) release();
  return ticket;
}

bool FaultStore::release() {
  Event done;
  {
    const std::scoped_lock lock(mutex_);
    if (pending_.empty()) return false;
    const Batch batch = pending_.front();
    pending_.pop_front();
    run(batch);
    done = batch.ticket.done;
  }
  done.set();
  return true;
}

void FaultStore::run(const Batch& batch) {
  // One by one, so that a failed request leaves the others of its batch in order.
  for (PageRequest& request : batch.requests) {
    if (fails(request)) {
      request.status = fail(plan_.error, "fault injected: page {:016x}{:016x}, request {}",
                            request.key.high, request.key.low, seen_);
      continue;
    }
    const auto inner = inner_->submit({&request, 1}, batch.options);
    const Status done =
        inner ? inner->done.wait(std::chrono::seconds(30)) : Status(tl::unexpected(inner.error()));
    if (!done) request.status = done;
  }
}

bool FaultStore::fails(const PageRequest& request) {
  if (request.verb != plan_.verb) return false;
  ++seen_;
  return seen_ == plan_.nth || (plan_.probability > 0 && rng_.uniform() < plan_.probability);
}

void FaultStore::cancel(const StoreTicket& ticket) noexcept {
  {
    const std::scoped_lock lock(mutex_);
    const auto batch = std::ranges::find(pending_, ticket.number,
                                         [](const Batch& each) { return each.ticket.number; });
    if (batch == pending_.end()) return;
    for (PageRequest& request : batch->requests) {
      request.status = fail(Errc::cancelled, "store {}: the batch was cancelled", name());
    }
    pending_.erase(batch);
  }
  ticket.done.set();
}

}  // namespace terrace::doubles
