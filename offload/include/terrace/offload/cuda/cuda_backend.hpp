// The backend of one NVIDIA device, through the CUDA runtime.
//
//   TERRACE_ASSIGN(auto backend, CudaBackend::create({.device_memory_limit = 8UL << 30}));
//   auto compute = backend->make_queue({.name = "compute", .high_priority = true});
//
// Device memory is cut from regions that the device gave, under a limit. Host memory is mapped on
// the NUMA node of the device, touched in parallel, on huge pages, and locked in pieces of at most
// `registration_bytes`; kernels read it where it lies. A queue is a stream. The caller tells the
// device of the work, and does not wait: work after a host function, or after work of a host queue,
// goes to the thread of the queue's lane, which tells the device when that is done. So a queue that
// fails runs nothing after the failure (core/queue.hpp). Events go to a stream only where somebody
// waits: Queue::record() marks the work so far, so that a wait for it is for no later work. A
// thread that waits looks by itself, for `spin`; then it sleeps, and one thread of the backend
// looks for all that sleep. A stream of the embedder's own: wrap_queue.hpp.
//
// An embedder may capture streams of its own into graphs meanwhile, in any mode: no call of the
// backend's, on whichever thread, ends a capture or fails for one.
//
// The host does not read device memory: copy through a queue. No header of CUDA is needed here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "terrace/core/backend.hpp"
#include "terrace/offload/host_memory.hpp"

struct CUstream_st;

namespace terrace::offload {

class Executor;
struct CallerQueueOptions;
struct ExecutorSetup;
struct ExecutorStream;
struct QueueLimits;

/// Clock and observer must outlive the backend.
struct CudaBackendOptions {
  int device = 0;                              ///< as CUDA numbers them
  std::size_t device_memory_limit = SIZE_MAX;  ///< bytes
  std::size_t host_memory_limit = SIZE_MAX;    ///< bytes
  std::size_t host_threads = 1;                ///< device_threads(), for host functions
  std::size_t touch_threads = 0;  ///< first touch host memory; 0 = as many as its node has CPUs
  std::size_t host_reserve_bytes = 0;  ///< locked in the background from the start on
  std::size_t registration_bytes = std::size_t{1} << 30;  ///< locked at once; a power of two
  HugePages huge_pages = HugePages::automatic;
  bool near_device = true;  ///< place host memory on a NUMA node; false = the first touch decides
  std::optional<std::uint32_t> numa_node{};  ///< which one; none = the device's
  /// Shorter copies of a batch go by a kernel, if both ends are memory of this backend and aligned
  /// to 16 bytes, longer ones by a copy engine, which is slow to start each; 0 = all by the engine.
  std::size_t switch_over_bytes = 0;
  std::size_t queue_capacity = 1024;                    ///< pieces enqueued and not done, per queue
  Duration spin = std::chrono::microseconds(20);        ///< before a thread sleeps; it looks
  Duration enqueue_timeout = std::chrono::seconds(30);  ///< a full queue holds its caller up; an
                                                        ///< ended one waits for the device
  /// Measures QueueCounters::busy and waited, which are zero without: two events a piece of work.
  /// With an observer they are measured, too.
  bool times = false;
  const Clock* clock = nullptr;      ///< of counters; null = steady
  WorkObserver* observer = nullptr;  ///< sees work once the host notices its end; null = none
};

/// A device for CUDA and its driver, as probe() finds them on this machine.
struct CudaDeviceReport {
  std::string name;                        ///< of the device
  int capability = 0;                      ///< 80 for 8.0
  int driver_version = 0;                  ///< 13000 for 13.0
  std::size_t memory_bytes = 0;            ///< of the device
  std::optional<std::uint32_t> numa_node;  ///< nearest to it
  std::string pci_bus;                     ///< 0000:01:00.0
};

class CudaBackend final : public Backend {
 public:
  /// Looks whether a device can be used, and makes nothing.
  ///
  /// Errors   unsupported: no driver, one that is too old, no such device, or one that is too old;
  ///          device_error, device_lost: there is one, and it fails. Each says what to do
  [[nodiscard]] static Result<CudaDeviceReport> probe(int device);

  /// Errors   those of probe; invalid_argument naming the option; out_of_memory
  [[nodiscard]] static Result<std::unique_ptr<Backend>> create(const CudaBackendOptions& options);
  ~CudaBackend() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "cuda"; }
  [[nodiscard]] Capabilities capabilities() const noexcept override;
  [[nodiscard]] const Ops& ops() const noexcept override;
  [[nodiscard]] const Clock& clock() const noexcept override { return *options_.clock; }
  [[nodiscard]] Parallel& device_threads() noexcept override;

  /// Errors   device_lost: close the backend; out_of_memory. A call on the queue gives
  ///          out_of_memory where the lane is needed for the first time, and the system has no
  ///          thread left
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_queue(const QueueOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Queue>> make_host_queue(
      const QueueOptions& options) override;
  [[nodiscard]] MemoryUsage memory(Tier tier) const noexcept override;
  void set_limit(Tier tier, std::size_t bytes) noexcept override;
  void reset_peak() noexcept override;

  /// Returns how the system granted host memory: huge pages, placement, bytes mapped and free.
  [[nodiscard]] HostMemoryReport host_memory_report() const;

 private:
  struct Parts;
  explicit CudaBackend(const CudaBackendOptions& options);
  friend Result<std::unique_ptr<Queue>> wrap_queue(Backend& backend, CUstream_st* stream,
                                                   const CallerQueueOptions& options);
  [[nodiscard]] Result<std::unique_ptr<Executor>> executor(const std::string& queue,
                                                           ExecutorStream stream);
  [[nodiscard]] ExecutorSetup setup(const std::string& queue, Parallel& threads) const;
  [[nodiscard]] QueueLimits limits() const;
  Result<std::byte*> do_allocate(const AllocationRequest& request) override;
  void do_release(std::byte* data, const AllocationRequest& request) noexcept override;

  CudaBackendOptions options_;
  SteadyClock steady_clock_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace terrace::offload
