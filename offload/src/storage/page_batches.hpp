// Batches of requests on their way from callers to the thread that carries them out.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "terrace/core/store.hpp"

namespace terrace::offload {

/// A batch under way.
struct PageBatch {
  StoreTicket ticket;
  std::span<PageRequest> requests;
  BatchOptions options;
  std::size_t left = 0;  ///< requests without a status; the thread's that carries them out
  TimePoint end_by = TimePoint::max();  ///< the thread's, where it counts time
  std::atomic<bool> is_cancelled{false};
};

/// Threads  submit and cancel from any; take and finish from the thread that carries out
class PageBatches {
 public:
  PageBatches(std::string_view store, std::size_t batches_max)
      : store_(store), batches_max_(batches_max) {}

  [[nodiscard]] Result<StoreTicket> submit(std::span<PageRequest> requests,
                                           const BatchOptions& options);
  /// Marks a batch. Returns whether it is under way.
  bool cancel(std::uint64_t number) noexcept;

  /// Returns the batches that came since, in order.
  [[nodiscard]] std::vector<std::shared_ptr<PageBatch>> take();
  /// Says that a batch is done.
  void finish(const PageBatch& batch);

 private:
  std::string_view store_;
  std::size_t batches_max_;
  std::mutex mutex_;  ///< guards all below
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, std::shared_ptr<PageBatch>> under_way_;
  std::vector<std::shared_ptr<PageBatch>> new_;
};

}  // namespace terrace::offload
