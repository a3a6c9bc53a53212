// Moves pages between host memory and a store below it.
//
//   PageMover mover(*pool, {.store = store, .deadline = deadline});
//   PageMover::Page page{.host = handle};
//   mover.demote({&page, 1});     // page.stored names its bytes in the store
//   pool->release(page.host);     // and the host's memory is free for other pages
//   mover.promote({&page, 1});    // page.host is a page with the same bytes
//
// Pages that are likely to leave may be copied ahead, in the background: demote() finds their bytes
// in the store and writes nothing.
//
// A page in the store has a key of its own, which is never used again, and is counted like a page
// of the pool: the last release() erases it. An adopted page is somebody else's, in this store or
// in another one, and stays.
//
// A page that promote() has brought is shared: a caller that asks for the same bytes while another
// one has them on the host gets the same page, without a read. So a page that has a name goes back,
// or loses the name, through the mover: give_back(), keep().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "terrace/core/store.hpp"
#include "terrace/offload/host_pages.hpp"
#include "terrace/offload/store_calls.hpp"

namespace terrace::offload {

class ResidentPages;
struct BytesName;

/// Names a page in a mover's store.
enum class StoredPage : std::uint64_t { none = 0 };

/// Where a store has the bytes of a page: in one of its own pages, which may have more.
struct StoredPlace {
  PageKey key = {};
  std::uint64_t offset = 0;
  std::shared_ptr<StoreCalls> source = nullptr;  ///< PageMover::source_of; null = the mover's store
};

struct PageMoverOptions {
  /// Pages go there; null: none can, and adopted ones are read alone.
  std::shared_ptr<Store> store;
  std::uint64_t owner = 0;  ///< first half of its keys: no other user of the store may have it
  Duration deadline{};      ///< of a batch of pages, and of the batch that is read beside it
  /// Frees room for so many bytes in a store that is full, of what is worth less than the pages.
  /// Returns whether there was something to free; the pages are tried again then.
  std::function<bool(std::uint64_t bytes)> make_room = {};
};

/// Threads  safe from any thread
class PageMover {
 public:
  /// A page to move. `status` says how that went.
  struct Page {
    PageHandle host = PageHandle::hole();
    StoredPage stored = StoredPage::none;
    bool was_read = false;  ///< promote() has read it: it was not on the host yet
    Status status;
  };

  /// Pages of one batch, at most. A call has two batches under way at a time, so that pages of
  /// other calls wait for at most so many of its own twice.
  static constexpr std::size_t batch_pages = 64;

  PageMover(HostPagePool& pool, PageMoverOptions options);
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;
  /// Waits for batches that are under way, each until the deadline.
  ~PageMover();

  /// Whether pages can go somewhere.
  [[nodiscard]] bool has_store() const noexcept { return calls_ != nullptr; }

  /// Writes pages that are not in the store yet, and names them there; waits for copies of the
  /// others. Nothing may write into them meanwhile. Errors, of each page: those of the store;
  /// not_ready past the deadline; unsupported: there is no store. A page that failed stays `none`.
  void demote(std::span<Page> pages);

  /// Starts to write pages that are not in the store yet, and names them there. Nobody waits: a
  /// copy that fails is written by demote(). The pool's pages are shared until then, and release()
  /// comes before anything is written into them. Errors, of each page: those of Store::submit;
  /// unsupported: there is no store. A page that failed stays `none`.
  void copy(std::span<Page> pages);
  /// Pages of copies that are under way.
  [[nodiscard]] std::size_t copies_under_way();

  /// Reads pages of the store into pages of the pool, or finds them there, one reference each. They
  /// are not to be written. The store keeps them. A page that was not brought has no host page.
  ///
  /// Errors   out_of_memory of the pool. Errors of each page: those of the store; not_ready past
  ///          the deadline. One more batch is read after an error: pages of later ones have neither
  ///          a host page nor an error
  Status promote(std::span<Page> pages);

  /// Returns how pages of a store are read; null for the mover's own store.
  [[nodiscard]] std::shared_ptr<StoreCalls> source_of(const std::shared_ptr<Store>& store) const;

  /// Names a page that a store has, and that is not erased. It has to stay there until the last
  /// reference is taken away.
  [[nodiscard]] StoredPage adopt(const StoredPlace& place);

  /// Whether it was adopted.
  [[nodiscard]] bool is_adopted(StoredPage page) const;

  /// Gives a page of the pool back that has the bytes of a page in the store.
  void give_back(StoredPage page, PageHandle host);
  /// A page of the pool goes on without the store's, and may be written: nobody shares it from now
  /// on.
  void keep(StoredPage page, PageHandle host);

  /// Adds a reference. Its holder shares `host`, too, the page of the pool; a hole if there is
  /// none.
  void share(StoredPage page, PageHandle host);
  /// Takes a reference away; the last one erases the page, unless it was adopted.
  void release(StoredPage page);

  /// Pages that are named.
  [[nodiscard]] std::size_t page_count() const;

 private:
  /// Pages of the pool that a batch reads or writes; they are given back with the batch.
  class HeldPages;
  /// Pages that are read from one source.
  struct Reading;
  /// A page that is not on the host yet.
  struct FreshPage;
  /// A batch of pages that are being brought.
  struct Arriving;
  enum class Presence : std::uint8_t { there, being_copied, not_copied };
  struct Named {
    StoredPlace place;
    std::uint32_t references = 1;
    bool adopted = false;
    Presence presence = Presence::there;
  };
  /// A batch of pages that are copied ahead.
  struct Copies {
    std::shared_ptr<const StoreBatch> batch;
    std::vector<StoredPage> pages;  ///< of each request
  };

  [[nodiscard]] PageKey own_key(StoredPage page) const noexcept {
    return {.high = owner_, .low = static_cast<std::uint64_t>(page)};
  }
  [[nodiscard]] Named named(StoredPage page) const;
  /// With the mutex held.
  [[nodiscard]] BytesName name_of(StoredPage page) const;
  /// Has pages share what is on the host already. The others, those with the same bytes once, are
  /// the batch's fresh ones.
  void share_resident(Arriving& batch);
  /// Takes new pages of the pool for fresh ones. Errors: out_of_memory; no page of the batch has a
  /// page of the pool then.
  Status take_host_pages(Arriving& batch);
  /// Has all that want the bytes of pages that were read share these.
  void share_read(Arriving& batch);
  /// Adds a page to those of its source.
  void add_to(Arriving& batch, Page& page);
  /// Begins to read a batch of pages. Errors: out_of_memory, and none of them is brought.
  Status start(Arriving& batch);
  /// Has them come. Returns whether all did.
  bool finish(Arriving& batch);
  /// Names the pages that the store does not have, and returns them.
  std::vector<Page*> name_new(std::span<Page> pages);
  /// Makes a batch that writes pages that were named.
  StoreBatch batch_of(std::span<Page* const> pages);
  /// Writes pages that were named, and sets the status of each.
  void put(std::span<Page* const> pages);
  /// Notes how copies that are done went.
  void settle_copies();
  /// Has the copies of pages end; a page whose copy has failed is `none` then.
  void await_copies(std::span<Page> pages);
  /// Returns copies under way, each once, that have some of the pages.
  [[nodiscard]] std::vector<Copies> copies_of(std::span<const Page> pages) const;
  /// Erases pages without a reference.
  void tidy_up();

  HostPagePool& pool_;
  const std::uint64_t owner_;
  const std::function<bool(std::uint64_t)> make_room_;
  const Duration deadline_;
  mutable std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::unordered_map<StoredPage, Named> named_;
  std::vector<PageKey> unnamed_;  ///< to be erased
  std::vector<Copies> copies_;    ///< under way
  std::unique_ptr<ResidentPages> resident_;
  std::shared_ptr<StoreCalls> calls_;  ///< null = no store
};

}  // namespace terrace::offload
