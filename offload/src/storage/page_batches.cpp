#include "page_batches.hpp"

#include <utility>

#include "queue/progress.hpp"
#include "store_errors.hpp"

namespace terrace::offload {

Result<StoreTicket> PageBatches::submit(std::span<PageRequest> requests,
                                        const BatchOptions& options) {
  TERRACE_TRY(check_batch(store_, requests));
  const std::scoped_lock lock(mutex_);
  if (under_way_.size() >= batches_max_) {
    return fail(Errc::out_of_memory, "store {}: {} batches are under way", store_,
                under_way_.size());
  }
  const std::uint64_t number = ++last_;
  if (requests.empty()) return StoreTicket{number};
  auto batch = std::make_shared<PageBatch>();
  batch->number = number;
  batch->requests = requests;
  batch->options = options;
  batch->left = requests.size();
  under_way_.emplace(number, batch);
  new_.push_back(std::move(batch));
  return StoreTicket{number};
}

Result<bool> PageBatches::poll(StoreTicket ticket) {
  const std::scoped_lock lock(mutex_);
  if (ticket.number > last_) return unknown_batch(store_, ticket);
  return is_done(ticket.number);
}

Status PageBatches::wait(StoreTicket ticket, Duration timeout) {
  std::unique_lock lock(mutex_);
  if (ticket.number > last_) return unknown_batch(store_, ticket);
  const auto is_over = [&] { return is_done(ticket.number); };
  const TimePoint deadline = deadline_after(timeout);
  if (done_.wait_until(lock, deadline, is_over)) return {};
  return fail(Errc::not_ready, "store {}: batch {} is not done in time", store_, ticket.number);
}

bool PageBatches::cancel(StoreTicket ticket) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = under_way_.find(ticket.number);
  if (found == under_way_.end()) return false;
  found->second->is_cancelled = true;
  return true;
}

std::vector<std::shared_ptr<PageBatch>> PageBatches::take() {
  const std::scoped_lock lock(mutex_);
  return std::exchange(new_, {});
}

void PageBatches::finish(const PageBatch& batch) {
  {
    const std::scoped_lock lock(mutex_);
    under_way_.erase(batch.number);
  }
  done_.notify_all();
}

}  // namespace terrace::offload
