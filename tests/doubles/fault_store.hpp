// A store with faults made to order: the Nth page of a verb fails, is damaged, or batches are late.
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
  Duration delay{};              ///< real time before a batch begins
  std::size_t batches_max = 64;  ///< under way at once; more are out_of_memory
};

/// Batches begin in the order they were submitted, when they are polled or waited for after their
/// delay. A batch whose wait times out is cancelled, and no request of it begins.
class FaultStore final : public Store {
 public:
  explicit FaultStore(std::unique_ptr<Store> inner) : inner_(std::move(inner)) {}

  /// Starts a plan, with all counts at 0. The default plan lets everything pass.
  void arm(const StoreFaultPlan& plan);

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] Result<StoreTicket> submit(std::span<PageRequest> batch) override;
  [[nodiscard]] Result<bool> poll(StoreTicket ticket) override;
  [[nodiscard]] Status wait(StoreTicket ticket, Duration timeout) override;

 private:
  struct Batch {
    std::uint64_t number;
    TimePoint begins_at;
    std::span<PageRequest> requests;
  };

  void run_due(std::uint64_t up_to);
  void run(std::span<PageRequest> requests);
  bool fails(const PageRequest& request);
  void cancel(std::uint64_t number);
  [[nodiscard]] bool pending(std::uint64_t number) const;

  std::unique_ptr<Store> inner_;
  std::mutex mutex_;
  StoreFaultPlan plan_;
  Rng rng_{0};
  std::uint64_t seen_ = 0;
  std::uint64_t batches_ = 0;
  std::deque<Batch> pending_;
};

}  // namespace terrace::doubles
