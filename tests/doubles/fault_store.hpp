// A store with faults made to order: the Nth page of a verb fails, or batches stand still.
//
//   FaultStore store(std::make_unique<MemoryStore>());
//   store.arm({.verb = PageVerb::get, .nth = 2, .error = Errc::io_error});
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "terrace/core/rng.hpp"
#include "terrace/core/store.hpp"

namespace terrace::doubles {

struct StoreFaultPlan {
  PageVerb verb = PageVerb::get;
  std::uint64_t nth = 0;   ///< the page request of `verb` that fails, from 1; 0 = no request
  double probability = 0;  ///< of any request of `verb` to fail
  std::uint64_t seed = 0;  ///< of the above
  Errc error = Errc::io_error;
  bool holds = false;            ///< batches begin by release() alone
  std::size_t batches_max = 64;  ///< under way at once; more are out_of_memory
};

/// Batches are carried out in the order they were submitted, within submit() or release(). No
/// request of a cancelled batch begins.
class FaultStore final : public Store {
 public:
  explicit FaultStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  /// Starts a plan, with all counts at 0. The default plan lets everything pass, but for batches
  /// that are held already.
  void arm(const StoreFaultPlan& plan);

  /// Carries out the oldest batch that is held. Returns whether there was one.
  bool release();

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  void cancel(const StoreTicket& ticket) noexcept override;
  [[nodiscard]] StoreUsage usage() const override { return inner_->usage(); }

 private:
  struct Batch {
    StoreTicket ticket;
    BatchOptions options;
    std::span<PageRequest> requests;
  };

  Result<StoreTicket> do_submit(std::span<PageRequest> batch, const BatchOptions& options) override;
  void run(const Batch& batch);
  bool fails(const PageRequest& request);

  std::unique_ptr<Store> inner_;
  std::mutex mutex_;
  StoreFaultPlan plan_;
  Rng rng_{0};
  std::uint64_t seen_ = 0;
  std::uint64_t batches_ = 0;
  std::deque<Batch> pending_;
};

}  // namespace terrace::doubles
