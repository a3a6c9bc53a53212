// The host backend: always there, and the specification of the other backends.
//
//   auto backend = HostBackend::create({.device_memory_limit = 1 << 30, .device_threads = 4});
//   auto compute = (*backend)->make_queue({.name = "compute"});
//
// "Device memory" is host memory under a limit of its own, queues have threads (QueueOptions::lane)
// and truly asynchronous copies, kernels run on `device_threads`. An embedder may have the work of
// a queue done on its own thread instead: caller_queue.hpp. A link may be imitated: transfers (by
// phase: offload one way; fetch, refill and index the other) then take the time they would.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "terrace/core/backend.hpp"
#include "terrace/offload/caller_queue.hpp"
#include "terrace/offload/host_memory.hpp"
#include "terrace/offload/link.hpp"
#include "terrace/offload/memory_ledger.hpp"

namespace terrace::offload {

class HostExecutor;
class NamedLanes;

/// Clock and observer must outlive the backend.
struct HostBackendOptions {
  std::size_t device_memory_limit = SIZE_MAX;  ///< bytes
  std::size_t host_memory_limit = SIZE_MAX;    ///< bytes
  std::size_t device_threads = 1;
  LinkOptions link{};
  HugePages huge_pages = HugePages::automatic;
  std::optional<std::uint32_t> numa_node{};             ///< of host-tier memory
  std::size_t queue_capacity = 1024;                    ///< pieces enqueued and not done, per queue
  Duration spin = std::chrono::microseconds(20);        ///< before a thread sleeps
  Duration enqueue_timeout = std::chrono::seconds(30);  ///< a full queue holds its caller up
  const Clock* clock = nullptr;      ///< of counters; null = steady. Deadlines are steady time
  WorkObserver* observer = nullptr;  ///< sees the work of its queues; null = no observer
};

class HostBackend final : public Backend {
 public:
  /// Buffers and queues made of a backend must go before it does.
  /// Errors: invalid_argument naming the option; out_of_memory: no thread left.
  [[nodiscard]] static Result<std::unique_ptr<Backend>> create(const HostBackendOptions& options);
  ~HostBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "host"; }
  [[nodiscard]] Capabilities capabilities() const noexcept override {
    return {.host_reads_device = true, .host_node = options_.numa_node};
  }
  [[nodiscard]] const Ops& ops() const noexcept override;
  [[nodiscard]] const Clock& clock() const noexcept override { return *options_.clock; }
  [[nodiscard]] Parallel& device_threads() noexcept override { return *device_threads_; }
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override;
  [[nodiscard]] MemoryUsage memory(Tier tier) const noexcept override;
  void set_limit(Tier tier, std::size_t bytes) noexcept override;
  void reset_peak() noexcept override;

  /// Bytes held for a purpose in a tier; 0 in one that the backend lacks.
  [[nodiscard]] std::size_t in_use(Tier tier, Purpose purpose) const noexcept;

  /// Returns how the system granted host-tier memory: huge pages, placement.
  [[nodiscard]] HostMemoryReport host_memory_report() const;

 private:
  /// A tier: the ledger that counts its bytes, and the source that maps its memory.
  struct Arena {
    MemoryLedger ledger;
    std::unique_ptr<HostMemory> memory;
  };

  explicit HostBackend(const HostBackendOptions& options);
  friend Result<std::unique_ptr<Queue>> make_caller_queue(Backend& backend,
                                                          const CallerQueueOptions& options);
  Result<std::unique_ptr<Queue>> make(const QueueOptions& options, Parallel& threads, Link* link);
  [[nodiscard]] std::unique_ptr<HostExecutor> executor(const std::string& queue, Parallel& threads,
                                                       Link* link) const;
  static bool has(Tier tier) noexcept { return tier == Tier::device || tier == Tier::host; }
  /// The arena of a tier that there is, as allocate() has checked.
  Arena& arena(Tier tier) noexcept { return tier == Tier::device ? device_ : host_; }
  const Arena& arena(Tier tier) const noexcept { return tier == Tier::device ? device_ : host_; }
  Result<std::byte*> do_allocate(const AllocationRequest& request) override;
  void do_release(std::byte* data, const AllocationRequest& request) noexcept override;

  HostBackendOptions options_;
  SteadyClock steady_clock_;
  std::unique_ptr<Parallel> device_threads_;
  Serial own_thread_;  ///< of host queues
  Link link_;
  std::unique_ptr<NamedLanes> lanes_;
  Arena device_;
  Arena host_;
};

}  // namespace terrace::offload
