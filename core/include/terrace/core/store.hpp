// Colder tiers: pages kept under keys, asynchronously, with a status for each page.
//
// A store never loses silently: a page that cannot be read back as it was written is an error of
// that page (corrupt, io_error, invalid_argument for an unknown key), and the others of its batch
// go on. Its caller fetches, or reports not_ready, or recomputes. Where some bytes of a
// page are damaged, the others are still there: get_part answers for the bytes that it moves.
//
//   TERRACE_ASSIGN(const StoreTicket ticket, store.submit(batch));
//   TERRACE_TRY(copies.wait_for(ticket.done));   // copies behind it start when pages are there
//   TERRACE_TRY(ticket.done.wait(patience));     // or the host waits, and looks at each status
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/event.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

/// Names a page: a hash of what it holds or a (sequence, layer, block) triple, by the caller's
/// choice.
struct PageKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const PageKey&) const = default;
};

/// For hash tables in memory. Keys are hashes, or numbers that follow each other.
struct PageKeyHash {
  std::size_t operator()(const PageKey& key) const noexcept {
    return static_cast<std::size_t>((key.high ^ key.low * 0xff51afd7ed558ccdULL) *
                                    0x9e3779b97f4a7c15ULL);
  }
};

enum class PageVerb : std::uint8_t {
  get,
  get_part,  ///< moves some bytes of a page, and looks at no others but those close by
  put,
  erase,
  find,  ///< returns the page's size and moves nothing; for a missing page 0 and an error
};

/// One page of a batch. Request and bytes must stay valid, and status unread, until the batch is
/// done. A batch is done when each of its requests is, well or not.
struct PageRequest {
  PageVerb verb = PageVerb::get;
  PageKey key = {};
  std::byte* data = nullptr;  ///< get, get_part: target; put: source; others: unused
  std::size_t bytes = 0;      ///< get and put must name the same size; find: set to it by the store
  std::size_t offset = 0;     ///< get_part: of the first byte, in the page; others: unused
  Status status = {};         ///< set by the store
};

/// Which of the requests that could begin does.
enum class Priority : std::uint8_t {
  awaited,     ///< somebody waits, as a step does for its rows: before all `background` ones
  background,  ///< nobody does, as of pages that are written behind
};

struct BatchOptions {
  Priority priority = Priority::awaited;
};

/// A batch under way.
struct StoreTicket {
  std::uint64_t number = 0;
  Event done = {};  ///< set once, behind the last byte and status
};

/// The pages and the room of a store: its room is the sum of used, reserved and free bytes.
struct StoreUsage {
  std::uint64_t pages = 0;
  std::uint64_t pages_max = 0;       ///< most that it can have at a time
  std::uint64_t page_bytes = 0;      ///< of all pages, as they were put
  std::uint64_t used_bytes = 0;      ///< that pages take: their own, and what rounding adds
  std::uint64_t reserved_bytes = 0;  ///< of puts under way, and of places that cannot be used
  std::uint64_t free_bytes = 0;

  bool operator==(const StoreUsage&) const = default;
};

/// Faults that a store met since it was opened.
struct StoreHealth {
  std::uint64_t corrupt = 0;     ///< reads whose bytes were not those written, and all lost pages
  std::uint64_t lost = 0;        ///< pages that were not there any more when it was opened
  std::uint64_t bad_places = 0;  ///< that the medium could not read or write
  bool writes = true;            ///< false: an error of the medium has ended all writing

  bool operator==(const StoreHealth&) const = default;
};

/// Threads  safe from any thread
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Starts a batch. Requests on one key are carried out in the order they are submitted, whatever
  /// their priority: those before an awaited one are awaited, too.
  /// Errors: out_of_memory when too many batches are under way; invalid_argument where it is null;
  /// nothing was started then. A request that has bytes and no memory, or no verb, is an
  /// invalid_argument of its own.
  [[nodiscard]] Result<StoreTicket> submit(std::span<PageRequest> batch,
                                           const BatchOptions& options = {}) {
    return do_submit(batch, options);
  }

  /// Has requests of a batch that have not begun end as cancelled: they have moved no byte and
  /// changed nothing. Those that a device is at end as they would have. It waits for nothing: the
  /// batch is done a moment later, or once the device has answered; its memory is the caller's
  /// then.
  virtual void cancel(const StoreTicket& ticket) noexcept = 0;

  /// Returns what is there now: at least what batches have done that somebody knows to be done.
  [[nodiscard]] virtual StoreUsage usage() const = 0;

  [[nodiscard]] virtual StoreHealth health() const { return {}; }

 private:
  virtual Result<StoreTicket> do_submit(std::span<PageRequest> batch,
                                        const BatchOptions& options) = 0;
};

}  // namespace terrace
