// Colder tiers: pages kept under keys, asynchronously, with a status for each page.
//
// A store never loses silently: a page that cannot be read back as it was written is an error of
// that page (corrupt, io_error, invalid_argument for an unknown key), and the others of its batch
// go on. The caller fetches, or reports not_ready, or recomputes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "terrace/core/clock.hpp"
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
  put,
  erase,
  find,  ///< returns the page's size and moves nothing; for a missing page 0 and an error
};

/// A page of a batch. Request and bytes must stay valid, and status unread, until the batch is
/// done.
struct PageRequest {
  PageVerb verb = PageVerb::get;
  PageKey key = {};
  std::byte* data = nullptr;  ///< get: target; put: source; others: unused
  std::size_t bytes = 0;      ///< get and put must name the same size; find: set to it by the store
  Status status = {};         ///< set by the store
};

/// A batch under way.
struct StoreTicket {
  std::uint64_t number = 0;
};

/// Threads  safe from any thread
class Store {
 public:
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// Starts a batch. Requests on one key are carried out in the order they are submitted.
  /// Errors: out_of_memory when too many batches are under way; invalid_argument where it is null;
  /// nothing was started then. A request that has bytes and no memory, or no verb, is an
  /// invalid_argument of its own.
  [[nodiscard]] virtual Result<StoreTicket> submit(std::span<PageRequest> batch) = 0;

  /// Returns whether the batch is done; each request then has its status.
  [[nodiscard]] virtual Result<bool> poll(StoreTicket ticket) = 0;

  /// Waits for the batch. Errors: not_ready when `timeout` has passed; requests not yet begun then
  /// end as cancelled. Requests that a device is working on continue: the batch is done once poll()
  /// says so.
  [[nodiscard]] virtual Status wait(StoreTicket ticket, Duration timeout) = 0;
};

}  // namespace terrace
