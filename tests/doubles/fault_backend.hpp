// A backend with faults made to order, for testing what embeds Terrace: the Nth piece of work of a
// phase fails, pieces fail at random from a seed, pieces are late, the Nth allocation is refused.
//
//   auto backend = FaultBackend::wrap(std::move(host));
//   backend->arm({.pieces = {{.phase = Phase::fetch, .nth = 3}}});
//
// All else passes through. Ops are enqueued on the queues that it makes, so they can fail as well.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "doubles/wrapped_backend.hpp"

namespace terrace::doubles {

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
  std::optional<Phase> delay_phase{};  ///< empty = all phases
  std::uint64_t allocation_nth = 0;  ///< the allocation refused as out_of_memory; 0 = no allocation
};

/// Counts of the faults made since the last arm().
struct FaultCounters {
  std::uint64_t pieces_failed = 0;
  std::uint64_t pieces_delayed = 0;
  std::uint64_t allocations_failed = 0;
};

/// Threads  as any backend; arm() from any thread
class FaultBackend final : public WrappedBackend {
 public:
  [[nodiscard]] static std::unique_ptr<FaultBackend> wrap(std::unique_ptr<Backend> inner);
  ~FaultBackend() override;

  /// Starts a plan, with all counts at 0. The default plan lets everything pass.
  void arm(const FaultPlan& plan);
  [[nodiscard]] FaultCounters counters() const;

  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override;

 private:
  class Faults;
  class FaultQueue;
  explicit FaultBackend(std::unique_ptr<Backend> inner);
  Result<std::byte*> do_allocate(const AllocationRequest& request) override;

  std::unique_ptr<Faults> faults_;
};

}  // namespace terrace::doubles
