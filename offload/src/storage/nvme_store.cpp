#include "terrace/offload/nvme_store.hpp"

#include "nvme_worker.hpp"

namespace terrace::offload {

Result<std::unique_ptr<NvmeStore>> NvmeStore::open(const NvmeStoreOptions& options) {
  TERRACE_ASSIGN(StorageFile file, StorageFile::open(options.file));
  std::unique_ptr<NvmeStore> store(
      new NvmeStore(std::make_unique<Worker>(std::move(file), options)));
  TERRACE_TRY(store->worker_->open());
  return store;
}

NvmeStore::NvmeStore(std::unique_ptr<Worker> worker) : worker_(std::move(worker)) {}

NvmeStore::~NvmeStore() {
  if (worker_->is_of_this_process()) {
    worker_->end();
    if (!worker_->is_abandoned()) return;
  }
  Worker::keep(std::move(worker_));
}

Result<StoreTicket> NvmeStore::do_submit(std::span<PageRequest> batch,
                                         const BatchOptions& options) {
  TERRACE_TRY(check_process());
  TERRACE_ASSIGN(StoreTicket ticket, worker_->batches().submit(batch, options));
  worker_->wake();
  return ticket;
}

void NvmeStore::cancel(const StoreTicket& ticket) noexcept {
  if (!worker_->is_of_this_process()) return;
  if (worker_->batches().cancel(ticket.number)) worker_->cancel_some();
}

StoreUsage NvmeStore::usage() const {
  return worker_->is_of_this_process() ? worker_->usage() : StoreUsage{};
}

StoreHealth NvmeStore::health() const { return state().health; }

NvmeStoreState NvmeStore::state() const {
  const Status here = check_process();
  if (here) return worker_->state();
  return {.health = {.writes = false}, .degraded = std::string(here.error().message())};
}

Status NvmeStore::check_process() const {
  if (worker_->is_of_this_process()) return {};
  return fail(Errc::unsupported,
              "store nvme: it is of the process that this one was forked from; open a file of its "
              "own in each process");
}

}  // namespace terrace::offload
