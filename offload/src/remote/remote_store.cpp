#include "terrace/offload/remote_store.hpp"

#include "remote_worker.hpp"

namespace terrace::offload {

Result<std::unique_ptr<RemoteStore>> RemoteStore::open(const RemoteStoreOptions& options) {
  std::unique_ptr<RemoteStore> store(new RemoteStore(std::make_unique<Worker>(options)));
  TERRACE_TRY(store->worker_->open());
  return store;
}

RemoteStore::RemoteStore(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}

RemoteStore::~RemoteStore() {
  if (worker_->is_of_this_process()) {
    worker_->end();
  } else {
    Worker::keep(std::move(worker_));
  }
}

Result<StoreTicket> RemoteStore::do_submit(std::span<PageRequest> batch,
                                           const BatchOptions& options) {
  TERRACE_TRY(check_process());
  TERRACE_ASSIGN(StoreTicket ticket, worker_->batches().submit(batch, options));
  worker_->wake();
  return ticket;
}

void RemoteStore::cancel(const StoreTicket& ticket) noexcept {
  if (!worker_->is_of_this_process()) return;
  if (worker_->batches().cancel(ticket.number)) worker_->cancel_some();
}

StoreUsage RemoteStore::usage() const {
  return worker_->is_of_this_process() ? worker_->usage() : StoreUsage{};
}

RemoteStoreState RemoteStore::state() const {
  const Status here = check_process();
  if (here) return worker_->state();
  return {.last_failure = std::string(here.error().message())};
}

Status RemoteStore::check_process() const {
  if (worker_->is_of_this_process()) return {};
  return fail(Errc::unsupported,
              "store remote: it is of the process that this one was forked from; open one of its "
              "own in each process");
}

}  // namespace terrace::offload
