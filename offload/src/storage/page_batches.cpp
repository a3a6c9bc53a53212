#include "page_batches.hpp"

#include <utility>

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
  StoreTicket ticket{.number = ++last_};
  if (requests.empty()) {
    ticket.done.set();
    return ticket;
  }
  auto batch = std::make_shared<PageBatch>();
  batch->ticket = ticket;
  batch->requests = requests;
  batch->options = options;
  batch->left = requests.size();
  under_way_.emplace(ticket.number, batch);
  new_.push_back(std::move(batch));
  return ticket;
}

bool PageBatches::cancel(std::uint64_t number) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto found = under_way_.find(number);
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
    under_way_.erase(batch.ticket.number);
  }
  batch.ticket.done.set();
}

}  // namespace terrace::offload
