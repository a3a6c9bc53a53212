// A backend of costs only: a virtual clock, a cost for each piece of work, no bytes moved. Queues
// run side by side in virtual time, transfers share the link, and waiting moves the clock.
//
//   auto sim = SimBackend::create({.costs = {.link = {.bandwidth_bytes_per_second = 26e9}}});
//   ...enqueue as on any backend...
//   (*sim)->clock().now();   // how long it would have taken
//
// Host functions run (they may return bytes, which are paid for); kernels do not. One thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "terrace/core/backend.hpp"
#include "terrace/offload/host_memory.hpp"
#include "terrace/offload/link.hpp"
#include "terrace/offload/memory_ledger.hpp"

namespace terrace::offload {

struct SimCosts {
  LinkOptions link{};
  std::array<Duration, phase_count> call{};  ///< of a host function or kernel, by phase
  /// Instead of `call` where set: the time of a call that returned `bytes`.
  std::function<Duration(Phase, std::size_t bytes)> cost_of_call{};
};

struct SimBackendOptions {
  std::size_t device_memory_limit = SIZE_MAX;  ///< bytes
  std::size_t host_memory_limit = SIZE_MAX;    ///< bytes
  SimCosts costs{};
};

class SimBackend final : public Backend {
 public:
  [[nodiscard]] static Result<std::unique_ptr<SimBackend>> create(const SimBackendOptions& options);
  ~SimBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "sim"; }
  [[nodiscard]] Capabilities capabilities() const noexcept override {
    return {.host_reads_device = true, .moves_bytes = false, .pinned_host = false};
  }
  [[nodiscard]] const Ops& ops() const noexcept override;
  [[nodiscard]] const Clock& clock() const noexcept override;
  [[nodiscard]] Parallel& device_threads() noexcept override { return serial_; }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override;
  [[nodiscard]] MemoryUsage memory(Tier tier) const noexcept override;
  void reset_peak() noexcept override;

  /// Lets virtual time pass, as an embedder's own work would; what ends meanwhile is done.
  void advance(Duration by);

 private:
  class Timeline;

  SimBackend(const SimBackendOptions& options, std::unique_ptr<HostMemory> memory);
  /// The ledger of a tier that there is, as allocate() has checked.
  MemoryLedger& ledger(Tier tier) noexcept { return tier == Tier::device ? device_ : host_; }
  Result<std::byte*> do_allocate(const AllocationRequest& request) override;
  void do_release(std::byte* data, const AllocationRequest& request) noexcept override;

  std::unique_ptr<Timeline> timeline_;
  Serial serial_;
  Link link_;
  MemoryLedger device_;
  MemoryLedger host_;
  std::unique_ptr<HostMemory> memory_;  ///< valid addresses; pages nobody touches cost nothing
};

}  // namespace terrace::offload
