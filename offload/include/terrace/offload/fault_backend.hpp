// A backend with faults made to order, for testing what embeds Terrace: the Nth piece of work of a
// phase fails, pieces fail at random from a seed, pieces are late, the Nth allocation is refused.
//
//   auto backend = FaultBackend::wrap(std::move(host));
//   backend->arm({.pieces = {{.phase = Phase::fetch, .nth = 3}}});
//
// All else passes through. Ops are enqueued on the queues that it makes, so they can fail as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "terrace/core/backend.hpp"

namespace terrace::offload {

/// The copy, call or op of `phase` that fails, counted over all queues from the last arm().
struct PieceFault {
  Phase phase = Phase::fetch;
  std::uint64_t nth = 1;        ///< from 1: of the phase, on whichever queue; 0 = each of them
  std::string_view queue = {};  ///< strikes on queues of that name alone; empty = on all
};

struct FaultPlan {
  std::vector<PieceFault> pieces{};
  double piece_probability = 0;  ///< of any piece to fail
  std::uint64_t seed = 0;        ///< of the above
  Errc piece_error = Errc::device_error;
  Duration delay{};                    ///< put before each piece of delay_phase; real time
  std::optional<Phase> delay_phase{};  ///< none = all
  std::uint64_t allocation_nth = 0;    ///< the allocation refused as out_of_memory; 0 = none
};

/// Counts of the faults made since the last arm().
struct FaultCounters {
  std::uint64_t pieces_failed = 0;
  std::uint64_t pieces_delayed = 0;
  std::uint64_t allocations_failed = 0;
};

/// Threads  as any backend; arm() from any thread
class FaultBackend final : public Backend {
 public:
  [[nodiscard]] static std::unique_ptr<FaultBackend> wrap(std::unique_ptr<Backend> inner);
  ~FaultBackend() override;

  /// Starts a plan, with all counts at 0. The default plan lets everything pass.
  void arm(const FaultPlan& plan);
  [[nodiscard]] FaultCounters counters() const;

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] Capabilities capabilities() const noexcept override {
    return inner_->capabilities();
  }
  [[nodiscard]] const Ops& ops() const noexcept override { return inner_->ops(); }
  [[nodiscard]] const Clock& clock() const noexcept override { return inner_->clock(); }
  [[nodiscard]] Parallel& device_threads() noexcept override { return inner_->device_threads(); }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override;
  [[nodiscard]] MemoryUsage memory(Tier tier) const noexcept override {
    return inner_->memory(tier);
  }
  void reset_peak() noexcept override { inner_->reset_peak(); }

 private:
  class Faults;
  class FaultQueue;
  explicit FaultBackend(std::unique_ptr<Backend> inner);
  Result<std::byte*> do_allocate(const AllocationRequest& request) override;
  void do_release(std::byte* data, const AllocationRequest& request) noexcept override;

  std::unique_ptr<Backend> inner_;
  std::unique_ptr<Faults> faults_;
};

}  // namespace terrace::offload
