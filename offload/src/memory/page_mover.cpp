#include "terrace/offload/page_mover.hpp"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "resident_pages.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::offload {

class PageMover::HeldPages {
 public:
  explicit HeldPages(HostPagePool& pool) noexcept : pool_(pool) {}
  HeldPages(const HeldPages&) = delete;
  HeldPages& operator=(const HeldPages&) = delete;
  ~HeldPages() {
    for (const PageHandle page : pages_) pool_.release(page);
  }

  /// Takes a reference over.
  void add(PageHandle page) { pages_.push_back(page); }

 private:
  HostPagePool& pool_;
  std::vector<PageHandle> pages_;
};

struct PageMover::Reading {
  std::shared_ptr<StoreCalls> source;
  StoreBatch batch;
  std::vector<Page*> pages;
  Status submitted = {};
};

struct PageMover::FreshPage {
  Page* page;
  BytesName name;
};

struct PageMover::Arriving {
  std::span<Page> pages;
  std::vector<FreshPage> fresh = {};  ///< of them, that are read
  std::shared_ptr<HeldPages> held = nullptr;
  std::vector<Reading> readings = {};  ///< mostly one

  /// Returns the page that is read for these bytes, or null.
  [[nodiscard]] Page* find_fresh(const BytesName& name) const noexcept {
    const auto found = std::ranges::find(fresh, name, &FreshPage::name);
    return found == fresh.end() ? nullptr : found->page;
  }
};

PageMover::PageMover(HostPagePool& pool, PageMoverOptions options)
    : pool_(pool),
      owner_(options.owner),
      make_room_(std::move(options.make_room)),
      deadline_(options.deadline),
      resident_(std::make_unique<ResidentPages>(pool)) {
  if (options.store != nullptr) {
    calls_ = std::make_shared<StoreCalls>(std::move(options.store), options.deadline);
  }
}

PageMover::~PageMover() {
  for (const Copies& copies : copies_) calls_->store().cancel(copies.batch->ticket);
  tidy_up();
}

std::shared_ptr<StoreCalls> PageMover::source_of(const std::shared_ptr<Store>& store) const {
  if (calls_ != nullptr && store.get() == &calls_->store()) return nullptr;
  return std::make_shared<StoreCalls>(store, deadline_);
}

void PageMover::tidy_up() {
  const std::lock_guard lock(mutex_);
  if (unnamed_.empty()) return;
  StoreBatch batch;
  for (const PageKey& key : unnamed_) {
    batch.requests.push_back({.verb = PageVerb::erase, .key = key});
  }
  if (calls_->start(std::move(batch))) unnamed_.clear();  // or they go with the next ones
}

std::vector<PageMover::Page*> PageMover::name_new(std::span<Page> pages) {
  std::vector<Page*> named;
  for (Page& page : pages) {
    page.status = {};
    if (page.stored != StoredPage::none) continue;
    if (calls_ == nullptr) {
      page.status = fail(Errc::unsupported, "there is no store that pages could go to");
      continue;
    }
    const std::lock_guard lock(mutex_);
    page.stored = StoredPage{++last_};
    named.push_back(&page);
  }
  return named;
}

void PageMover::demote(std::span<Page> pages) {
  tidy_up();
  await_copies(pages);
  const std::vector<Page*> moved = name_new(pages);
  put(moved);
  const auto lacks_room = [](const Page* page) {
    return !page->status && page->status.error().code == Errc::out_of_memory;
  };
  for (;;) {
    std::vector<Page*> left;
    std::ranges::copy_if(moved, std::back_inserter(left), lacks_room);
    if (left.empty() || !make_room_ || !make_room_(left.size() * pool_.page_bytes())) break;
    put(left);
  }
  const std::lock_guard lock(mutex_);
  for (Page* const page : moved) {
    const StoredPlace place{.key = own_key(page->stored)};
    if (page->status) {
      named_.emplace(page->stored, Named{.place = place});
    } else {
      unnamed_.push_back(place.key);
      page->stored = StoredPage::none;
    }
  }
}

StoreBatch PageMover::batch_of(std::span<Page* const> pages) {
  const auto held = std::make_shared<HeldPages>(pool_);
  StoreBatch batch{.requests = {}, .memory = held};
  for (const Page* const page : pages) {
    batch.requests.push_back({.verb = PageVerb::put,
                              .key = own_key(page->stored),
                              .data = pool_.resolve(page->host),
                              .bytes = pool_.page_bytes()});
    pool_.share(page->host);
    held->add(page->host);
  }
  return batch;
}

void PageMover::put(std::span<Page* const> pages) {
  if (pages.empty()) return;
  StoreBatch batch = batch_of(pages);
  const Status carried = calls_->carry_out(batch);
  for (std::size_t i = 0; i < pages.size(); ++i) {
    pages[i]->status = carried ? batch.requests[i].status : carried;
  }
}

void PageMover::copy(std::span<Page> pages) {
  tidy_up();
  settle_copies();
  const std::vector<Page*> copied = name_new(pages);
  if (copied.empty()) return;
  StoreBatch batch = batch_of(copied);
  batch.options.priority = Priority::background;
  auto started = calls_->start(std::move(batch));
  const std::lock_guard lock(mutex_);
  Copies copies;
  for (Page* const page : copied) {
    if (started) {
      const StoredPlace place{.key = own_key(page->stored)};
      named_.emplace(page->stored, Named{.place = place, .presence = Presence::being_copied});
      copies.pages.push_back(page->stored);
    } else {
      page->status = tl::unexpected(started.error());
      page->stored = StoredPage::none;
    }
  }
  if (!started) return;
  copies.batch = std::move(*started);
  copies_.push_back(std::move(copies));
}

std::size_t PageMover::copies_under_way() {
  settle_copies();
  const std::lock_guard lock(mutex_);
  std::size_t pages = 0;
  for (const Copies& copies : copies_) pages += copies.pages.size();
  return pages;
}

void PageMover::settle_copies() {
  const std::lock_guard lock(mutex_);
  const auto settle = [&](const Copies& copies) {
    if (!copies.batch->ticket.done.is_set()) return false;
    for (std::size_t i = 0; i < copies.pages.size(); ++i) {
      const auto found = named_.find(copies.pages[i]);
      if (found == named_.end()) continue;  // it has been released
      const bool written = copies.batch->requests[i].status.has_value();
      found->second.presence = written ? Presence::there : Presence::not_copied;
    }
    return true;
  };
  if (std::erase_if(copies_, settle) > 0) calls_->forget_ended();
}

std::vector<PageMover::Copies> PageMover::copies_of(std::span<const Page> pages) const {
  const std::lock_guard lock(mutex_);
  std::vector<Copies> found;
  std::ranges::copy_if(copies_, std::back_inserter(found), [&](const Copies& copies) {
    return std::ranges::any_of(pages, [&](const Page& page) {
      return std::ranges::find(copies.pages, page.stored) != copies.pages.end();
    });
  });
  return found;
}

void PageMover::await_copies(std::span<Page> pages) {
  settle_copies();
  for (const Copies& copies : copies_of(pages)) {
    // Writes that have not begun come before all other work, and not after it.
    calls_->store().cancel(copies.batch->ticket);
    static_cast<void>(copies.batch->ticket.done.wait(deadline_));
  }
  settle_copies();
  for (Page& page : pages) {
    if (page.stored == StoredPage::none || named(page.stored).presence == Presence::there) continue;
    release(std::exchange(page.stored, StoredPage::none));
  }
}

BytesName PageMover::name_of(StoredPage page) const {
  const StoredPlace& place = named_.at(page).place;
  return {.key = place.key, .offset = place.offset};
}

PageMover::Named PageMover::named(StoredPage page) const {
  const std::lock_guard lock(mutex_);
  return named_.at(page);
}

void PageMover::add_to(Arriving& batch, Page& page) {
  const Named from = named(page.stored);
  const std::shared_ptr<StoreCalls>& source =
      from.place.source != nullptr ? from.place.source : calls_;
  auto reading = std::ranges::find(batch.readings, source, &Reading::source);
  if (reading == batch.readings.end()) {
    batch.readings.push_back(
        {.source = source, .batch = {.requests = {}, .memory = batch.held}, .pages = {}});
    reading = batch.readings.end() - 1;
  }
  reading->batch.requests.push_back({.verb = from.adopted ? PageVerb::get_part : PageVerb::get,
                                     .key = from.place.key,
                                     .data = pool_.resolve(page.host),
                                     .bytes = pool_.page_bytes(),
                                     .offset = from.place.offset});
  reading->pages.push_back(&page);
}

void PageMover::share_resident(Arriving& batch) {
  const std::lock_guard lock(mutex_);
  for (Page& page : batch.pages) {
    const BytesName name = name_of(page.stored);
    page.host = resident_->share(name);
    if (page.host.is_hole() && batch.find_fresh(name) == nullptr) {
      batch.fresh.push_back({&page, name});
    }
  }
}

Status PageMover::take_host_pages(Arriving& batch) {
  for (const FreshPage& fresh : batch.fresh) {
    const Result<PageHandle> host = pool_.allocate();
    if (!host) {
      const std::lock_guard lock(mutex_);
      for (Page& page : batch.pages) {
        if (page.host.is_hole()) continue;
        resident_->give_back(name_of(page.stored), std::exchange(page.host, PageHandle::hole()));
      }
      return tl::unexpected(host.error());
    }
    fresh.page->host = *host;
  }
  return {};
}

void PageMover::share_read(Arriving& batch) {
  const std::lock_guard lock(mutex_);
  for (const auto& [page, name] : batch.fresh) {
    if (page->status) {
      page->host = resident_->note(name, page->host);
    } else {
      pool_.release(std::exchange(page->host, PageHandle::hole()));
    }
  }
  for (Page& page : batch.pages) {
    if (!page.host.is_hole() || !page.status) continue;
    const BytesName name = name_of(page.stored);
    page.status = batch.find_fresh(name)->status;
    if (page.status) page.host = resident_->share(name);
  }
}

Status PageMover::start(Arriving& batch) {
  share_resident(batch);
  TERRACE_TRY(take_host_pages(batch));
  batch.held = std::make_shared<HeldPages>(pool_);
  for (const FreshPage& fresh : batch.fresh) {
    // The batch gives its reference back, in time or not.
    pool_.share(fresh.page->host);
    batch.held->add(fresh.page->host);
    add_to(batch, *fresh.page);
  }
  for (Reading& reading : batch.readings) {
    reading.submitted = reading.source->submit(reading.batch);
  }
  return {};
}

bool PageMover::finish(Arriving& batch) {
  for (Reading& reading : batch.readings) {
    const Status carried =
        reading.submitted ? reading.source->await(reading.batch) : reading.submitted;
    for (std::size_t i = 0; i < reading.pages.size(); ++i) {
      Page& page = *reading.pages[i];
      page.status = carried ? reading.batch.requests[i].status : carried;
      page.was_read = page.status.has_value();
    }
  }
  share_read(batch);
  return std::ranges::all_of(batch.pages, [](const Page& page) { return page.status.has_value(); });
}

Status PageMover::promote(std::span<Page> pages) {
  tidy_up();
  for (Page& page : pages) page = {.host = PageHandle::hole(), .stored = page.stored, .status = {}};
  std::optional<Arriving> before;
  Status started;
  bool all_came = true;
  while (!pages.empty() && started && all_came) {
    Arriving batch{.pages = pages.first(std::min(pages.size(), batch_pages))};
    pages = pages.subspan(batch.pages.size());
    started = start(batch);
    if (before) all_came = finish(*before);
    before.reset();
    if (started) before = std::move(batch);
  }
  if (before) finish(*before);
  return started;
}

StoredPage PageMover::adopt(const StoredPlace& place) {
  const std::lock_guard lock(mutex_);
  const StoredPage page{++last_};
  named_.emplace(page, Named{.place = place, .adopted = true});
  return page;
}

bool PageMover::is_adopted(StoredPage page) const {
  const std::lock_guard lock(mutex_);
  return named_.at(page).adopted;
}

void PageMover::give_back(StoredPage page, PageHandle host) {
  const std::lock_guard lock(mutex_);
  resident_->give_back(name_of(page), host);
}

void PageMover::keep(StoredPage page, PageHandle host) {
  const std::lock_guard lock(mutex_);
  resident_->forget(name_of(page), host);
}

void PageMover::share(StoredPage page, PageHandle host) {
  const std::lock_guard lock(mutex_);
  ++named_.at(page).references;
  if (!host.is_hole()) resident_->add_holder(name_of(page), host);
}

void PageMover::release(StoredPage page) {
  std::shared_ptr<StoreCalls> source;  // it may wait as it goes: not with the mutex
  const std::lock_guard lock(mutex_);
  const auto found = named_.find(page);
  TERRACE_ASSERT(found != named_.end());
  if (--found->second.references > 0) return;
  if (!found->second.adopted) unnamed_.push_back(found->second.place.key);
  source = std::move(found->second.place.source);
  named_.erase(found);
}

std::size_t PageMover::page_count() const {
  const std::lock_guard lock(mutex_);
  return named_.size();
}

}  // namespace terrace::offload
