#include "terrace/offload/page_mover.hpp"

#include <utility>

#include "terrace/core/assert.hpp"

namespace terrace::offload {
namespace {

constexpr PageHandle no_page{.region = PageHandle::no_region};

}  // namespace

PageMover::~PageMover() {
  tidy_up();
  for (Batch& batch : under_way_) {
    static_cast<void>(batch.ticket.done.wait(options_.deadline));
    end(batch);
  }
  // Where this was the store's last user, the store ends what it is still at, before its requests
  // go.
  options_.store.reset();
}

void PageMover::end(Batch& batch) noexcept {
  for (const PageHandle page : batch.held) pool_.release(page);
  batch.held.clear();
}

void PageMover::forget_ended() {
  std::erase_if(under_way_, [&](Batch& batch) {
    if (!batch.ticket.done.is_set()) return false;
    end(batch);
    return true;
  });
}

void PageMover::tidy_up() {
  const std::lock_guard lock(mutex_);
  forget_ended();
  if (unnamed_.empty()) return;
  Batch& batch = under_way_.emplace_back();
  for (const StoredPage page : unnamed_) {
    batch.requests.push_back({.verb = PageVerb::erase, .key = key_of(page)});
  }
  const Result<StoreTicket> ticket = options_.store->submit(batch.requests);
  if (!ticket) return under_way_.pop_back();  // with the next ones
  batch.ticket = *ticket;
  unnamed_.clear();
}

Status PageMover::carry_out(Batch& batch) {
  const Result<StoreTicket> ticket = options_.store->submit(batch.requests);
  if (!ticket) {
    end(batch);
    return tl::unexpected(ticket.error());
  }
  batch.ticket = *ticket;
  const Status waited = batch.ticket.done.wait(options_.deadline);
  if (!waited) options_.store->cancel(batch.ticket);
  if (batch.ticket.done.is_set()) {
    end(batch);
    return {};
  }
  // The device is still at some of them.
  const std::lock_guard lock(mutex_);
  under_way_.push_back(std::move(batch));
  return waited;
}

void PageMover::demote(std::span<Page> pages) {
  tidy_up();
  Batch batch;
  std::vector<Page*> moved;
  for (Page& page : pages) {
    page.status = {};
    if (page.stored != StoredPage::none) continue;
    const std::lock_guard lock(mutex_);
    page.stored = StoredPage{++last_};
    moved.push_back(&page);
    batch.requests.push_back({.verb = PageVerb::put,
                              .key = key_of(page.stored),
                              .data = pool_.resolve(page.host),
                              .bytes = pool_.page_bytes()});
    pool_.share(page.host);
    batch.held.push_back(page.host);
  }
  if (moved.empty()) return;
  const Status carried = carry_out(batch);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < moved.size(); ++i) {
    Page& page = *moved[i];
    page.status = carried ? batch.requests[i].status : carried;
    if (page.status) {
      references_.emplace(page.stored, 1);
    } else {
      unnamed_.push_back(std::exchange(page.stored, StoredPage::none));
    }
  }
}

Status PageMover::promote(std::span<Page> pages) {
  tidy_up();
  Batch batch;
  for (Page& page : pages) {
    const Result<PageHandle> host = pool_.allocate();
    if (!host) {
      end(batch);
      for (Page& other : pages) other.host = no_page;
      return tl::unexpected(host.error());
    }
    page.host = *host;
    batch.held.push_back(*host);
    batch.requests.push_back({.verb = PageVerb::get,
                              .key = key_of(page.stored),
                              .data = pool_.resolve(*host),
                              .bytes = pool_.page_bytes()});
  }
  // Given back where the batch ends, in time or not: pages that are right are the caller's.
  for (const PageHandle host : batch.held) pool_.share(host);
  const Status carried = carry_out(batch);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    Page& page = pages[i];
    page.status = carried ? batch.requests[i].status : carried;
    if (!page.status) pool_.release(std::exchange(page.host, no_page));
  }
  return {};
}

void PageMover::share(StoredPage page) {
  const std::lock_guard lock(mutex_);
  ++references_.at(page);
}

void PageMover::release(StoredPage page) {
  const std::lock_guard lock(mutex_);
  const auto found = references_.find(page);
  TERRACE_ASSERT(found != references_.end());
  if (--found->second > 0) return;
  references_.erase(found);
  unnamed_.push_back(page);
}

std::size_t PageMover::page_count() const {
  const std::lock_guard lock(mutex_);
  return references_.size();
}

}  // namespace terrace::offload
