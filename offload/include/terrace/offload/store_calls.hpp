// Batches of a store that somebody waits for, until a deadline. The memory of a batch that is late
// stays until the store is done with it.
//
//   StoreCalls calls(store, deadline);
//   TERRACE_TRY(calls.write({{.key = key, .bytes = bytes}}));
//   TERRACE_ASSIGN(const std::vector<std::byte> same, calls.read(key));
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "terrace/core/store.hpp"

namespace terrace::offload {

struct StoreBatch {
  std::vector<PageRequest> requests;
  std::shared_ptr<void> memory = nullptr;  ///< holds what the requests point at
  BatchOptions options = {};
  StoreTicket ticket = {};        ///< set by the call
  Deadline deadline{Duration{}};  ///< of await(); set by the call
};

/// Bytes that are kept under a key.
struct StoredBytes {
  PageKey key = {};
  std::vector<std::byte> bytes;
};

/// Threads  safe from any thread
class StoreCalls {
 public:
  StoreCalls(std::shared_ptr<Store> store, Duration deadline) noexcept
      : store_(std::move(store)), deadline_(deadline) {}
  StoreCalls(const StoreCalls&) = delete;
  StoreCalls& operator=(const StoreCalls&) = delete;
  /// Waits for batches that are late, each until the deadline.
  ~StoreCalls();

  /// Submits a batch, which await() waits for. Errors: those of Store::submit.
  [[nodiscard]] Status submit(StoreBatch& batch);
  /// Waits for a batch that was submitted. Each request has a status of its own then.
  ///
  /// Errors   not_ready once the deadline, counted from the batch's submission, is over: what has
  ///          not begun is cancelled, the batch is no longer the caller's, and nothing is known of
  ///          its requests
  [[nodiscard]] Status await(StoreBatch& batch);
  /// Submits a batch and waits for it. Errors: those of both.
  [[nodiscard]] Status carry_out(StoreBatch& batch) {
    TERRACE_TRY(submit(batch));
    return await(batch);
  }
  /// Starts a batch that nobody waits for. Its requests may be read once its ticket is done.
  /// Errors: those of Store::submit.
  [[nodiscard]] Result<std::shared_ptr<const StoreBatch>> start(StoreBatch batch);
  /// Lets go of the memory of started batches that are done, as each call does.
  void forget_ended();

  /// Returns the bytes of each page, 0 where there is none. Errors: as carry_out().
  [[nodiscard]] Result<std::vector<std::size_t>> sizes_of(std::span<const PageKey> keys);
  /// Returns pages. Errors: as carry_out(). Errors of each page: those of the request;
  /// invalid_argument where there is no such page.
  [[nodiscard]] Result<std::vector<Result<std::vector<std::byte>>>> read_all(
      std::span<const PageKey> keys);
  /// Returns a page. Errors: as read_all().
  [[nodiscard]] Result<std::vector<std::byte>> read(PageKey key);
  /// Writes pages. Errors: as carry_out(); the first of the requests.
  [[nodiscard]] Status write(std::vector<StoredBytes> pages);
  /// Erases pages that are there. Errors: as write(), but for pages that are not there.
  [[nodiscard]] Status erase(std::span<const PageKey> keys);

  [[nodiscard]] Store& store() noexcept { return *store_; }

 private:
  std::shared_ptr<Store> store_;
  Duration deadline_;
  std::mutex mutex_;
  std::list<std::shared_ptr<const StoreBatch>> under_way_;  ///< without a caller that waits
};

}  // namespace terrace::offload
