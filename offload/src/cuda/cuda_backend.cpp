#include "terrace/offload/cuda/cuda_backend.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <system_error>

#include "cuda_memory.hpp"
#include "cuda_ops.hpp"
#include "device_health.hpp"
#include "device_scope.hpp"
#include "host/host_executor.hpp"
#include "memory/region_pool.hpp"
#include "queue/caller_queue.hpp"
#include "queue/worker_queue.hpp"
#include "stream_executor.hpp"
#include "support/check.hpp"
#include "terrace/offload/cuda/wrap_queue.hpp"
#include "terrace/offload/memory_ledger.hpp"
#include "terrace/offload/parallel.hpp"
#include "terrace/offload/thread.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t device_region_bytes = std::size_t{32} << 20;
constexpr std::size_t host_region_bytes = std::size_t{16} << 20;
constexpr std::size_t registration_bytes_min = std::size_t{2} << 20;

Status validate(const CudaBackendOptions& options) {
  if (options.queue_capacity < 2) {
    return fail(Errc::invalid_argument, "queue_capacity must be at least 2");
  }
  if (!std::has_single_bit(options.registration_bytes) ||
      options.registration_bytes < registration_bytes_min) {
    return fail(Errc::invalid_argument, "registration_bytes {}: give a power of two, 2 MiB or more",
                options.registration_bytes);
  }
  return {};
}

/// All CPUs of the node that pages go to fault them in, so that the set-up of much memory does not
/// hang on one thread.
Result<std::size_t> touch_threads(const CudaBackendOptions& options,
                                  std::optional<std::uint32_t> node) {
  if (options.touch_threads != 0) return options.touch_threads;
  TERRACE_ASSIGN(const Topology topology, Topology::discover());
  std::size_t cpus = 0;
  for (const NumaNode& each : topology.nodes()) {
    if (!node || each.index == *node) cpus += each.cpus.size();
  }
  return std::max<std::size_t>(cpus, 1);
}

#ifndef NDEBUG
/// Fills memory with what is NaN in every floating dtype.
Status fill_with_nan(std::byte* data, const AllocationRequest& request) {
  if (request.tier == Tier::host) {
    std::memset(data, 0xff, request.bytes);
    return {};
  }
  const BesideCaptures beside_captures;
  TERRACE_TRY(cuda::check(cudaMemset(data, 0xff, request.bytes), "filling memory"));
  return cuda::check(cudaDeviceSynchronize(), "filling memory");
}
#endif

Result<cudaStream_t> make_stream(bool high_priority) {
  int least = 0;
  int greatest = 0;
  TERRACE_TRY(
      cuda::check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities"));
  cudaStream_t stream = nullptr;
  TERRACE_TRY(cuda::check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                                       high_priority ? greatest : least),
                          "making a stream"));
  return stream;
}

}  // namespace

/// In the order of their making: pools end before what their regions come from.
struct CudaBackend::Parts {
  Parts(const CudaBackendOptions& options, const CudaDeviceReport& device)
      : device_ledger("device.memory", options.device_memory_limit),
        host_ledger("host.memory", options.host_memory_limit),
        device_regions(options.device, std::min(device_region_bytes, options.device_memory_limit)),
        registered(options.device, options.registration_bytes),
        device_pool(device_regions, DeviceRegions::alignment),
        node(!options.near_device ? std::nullopt
             : options.numa_node  ? options.numa_node
                                  : device.numa_node),
        lanes(options.spin),
        events(options.times || options.observer != nullptr) {}
  ~Parts() {
    ending.store(true);
    if (reserver.joinable()) reserver.join();
  }

  /// Locks host memory ahead, a registration at a time: each can be used as soon as it is there.
  /// Errors: out_of_memory when the system has no thread left.
  Status reserve(std::size_t bytes, std::size_t step) {
    const auto lock_ahead = [this, bytes, step] {
      for (std::size_t left = bytes; left > 0 && !ending.load();) {
        const std::size_t now = std::min(left, step);
        // Memory that is short now is asked for again by its user, who reports the lack.
        if (!host_memory->reserve(now)) return;
        left -= now;
      }
    };
    try {
      reserver = Thread(lock_ahead);
    } catch (const std::system_error&) {
      return fail(Errc::out_of_memory, "the system has no thread left to lock host memory ahead");
    }
    return {};
  }

  DeviceHealth health;
  MemoryLedger device_ledger;
  MemoryLedger host_ledger;
  DeviceRegions device_regions;
  RegisteredMemory registered;
  RegionPool device_pool;
  std::optional<std::uint32_t> node;
  NamedLanes lanes;
  EventPool events;
  std::unique_ptr<StreamWatch> watch;
  std::unique_ptr<Parallel> threads;
  std::unique_ptr<Parallel> touching;
  Serial own_thread;  ///< of host queues
  std::unique_ptr<HostMemory> host_memory;
  std::optional<ReachableMemory> reachable;
  std::atomic<bool> ending{false};
  Thread reserver;
};

Result<std::unique_ptr<Backend>> CudaBackend::create(const CudaBackendOptions& options) {
  TERRACE_TRY(validate(options));
  TERRACE_ASSIGN(const CudaDeviceReport device, probe(options.device));
  const DeviceScope scope(options.device);
  TERRACE_TRY(scope.status());
  // Also where it is the thread's already: that another program has the device shows here first.
  TERRACE_TRY(cuda::check(cudaSetDevice(options.device), "choosing the device"));
  std::unique_ptr<CudaBackend> backend(new CudaBackend(options));
  backend->parts_ = std::make_unique<Parts>(options, device);
  Parts& parts = *backend->parts_;
  TERRACE_ASSIGN(parts.watch, StreamWatch::create(options.device, options.spin));
  TERRACE_ASSIGN(parts.threads, make_parallel({.threads = options.host_threads, .name = "device"}));
  TERRACE_ASSIGN(const std::size_t touching, touch_threads(options, parts.node));
  TERRACE_ASSIGN(parts.touching,
                 make_parallel({.threads = touching, .numa_node = parts.node, .name = "touch"}));
  TERRACE_ASSIGN(
      parts.host_memory,
      HostMemory::create({.huge_pages = options.huge_pages,
                          .numa_node = parts.node,
                          .region_bytes = std::min(host_region_bytes, options.registration_bytes),
                          .parallel = parts.touching.get(),
                          .pinner = &parts.registered}));
  parts.reachable.emplace(parts.device_pool, *parts.host_memory);
  if (options.host_reserve_bytes > 0) {
    TERRACE_TRY(parts.reserve(options.host_reserve_bytes, options.registration_bytes));
  }
  return backend;
}

CudaBackend::CudaBackend(const CudaBackendOptions& options) : options_(options) {
  if (options_.clock == nullptr) options_.clock = &steady_clock_;
}

CudaBackend::~CudaBackend() = default;

const Ops& CudaBackend::ops() const noexcept { return cuda_ops(); }
Parallel& CudaBackend::device_threads() noexcept { return *parts_->threads; }

MemoryUsage CudaBackend::memory(Tier tier) const noexcept {
  if (tier == Tier::device) return parts_->device_ledger.usage();
  if (tier == Tier::host) return parts_->host_ledger.usage();
  return {};
}

void CudaBackend::set_limit(Tier tier, std::size_t bytes) noexcept {
  if (tier == Tier::device) parts_->device_ledger.set_limit(bytes);
  if (tier == Tier::host) parts_->host_ledger.set_limit(bytes);
}

void CudaBackend::reset_peak() noexcept {
  parts_->device_ledger.reset_peak();
  parts_->host_ledger.reset_peak();
}

Result<std::unique_ptr<Queue>> CudaBackend::make_queue(const QueueOptions& options) {
  TERRACE_TRY(parts_->health.check());
  const DeviceScope device(options_.device);
  TERRACE_TRY(device.status());
  TERRACE_ASSIGN(const cudaStream_t stream, make_stream(options.high_priority));
  TERRACE_ASSIGN(auto streams, executor(options.name, {.stream = stream}));
  return WorkerQueue::create(std::move(streams),
                             {.limits = limits(), .lanes = &parts_->lanes, .lane = options.lane});
}

Result<std::unique_ptr<Queue>> CudaBackend::make_host_queue(const QueueOptions& options) {
  return WorkerQueue::create(
      std::make_unique<HostExecutor>(setup(options.name, parts_->own_thread), nullptr),
      {.limits = limits(), .lanes = &parts_->lanes, .lane = options.lane});
}

Result<std::unique_ptr<Queue>> wrap_queue(Backend& backend, cudaStream_t stream,
                                          const CallerQueueOptions& options) {
  auto* const cuda = dynamic_cast<CudaBackend*>(&backend);
  if (cuda == nullptr) {
    return fail(Errc::invalid_argument,
                "queue {}: backend {} has no streams of CUDA; on host, make_caller_queue() takes "
                "the calling thread",
                options.name, backend.name());
  }
  TERRACE_TRY(cuda->parts_->health.check());
  const DeviceScope device(cuda->options_.device);
  TERRACE_TRY(device.status());
  TERRACE_ASSIGN(auto borrowed, cuda->executor(options.name, {.stream = stream, .borrowed = true}));
  QueueLimits limits = cuda->limits();
  limits.enqueue_timeout = options.wait_timeout;
  return std::make_unique<CallerQueue>(std::move(borrowed), limits);
}

Result<std::unique_ptr<Executor>> CudaBackend::executor(const std::string& queue,
                                                        ExecutorStream stream) {
  auto lent = LentMemory::take(parts_->device_pool, *parts_->host_memory, options_.queue_capacity);
  if (!lent) {
    if (!stream.borrowed) {
      const BesideCaptures beside_captures;
      static_cast<void>(cuda::check(cudaStreamDestroy(stream.stream), "ending a stream"));
    }
    return tl::unexpected(lent.error());
  }
  return StreamExecutor::create(setup(queue, *parts_->threads),
                                {.device = options_.device,
                                 .capacity = options_.queue_capacity,
                                 .ending_timeout = options_.enqueue_timeout,
                                 .piece_bytes = options_.registration_bytes,
                                 .by_kernel_below = options_.switch_over_bytes,
                                 .reachable = &*parts_->reachable,
                                 .times = options_.times || options_.observer != nullptr,
                                 .health = &parts_->health,
                                 .events = &parts_->events,
                                 .watch = parts_->watch.get()},
                                std::move(*lent), stream);
}

ExecutorSetup CudaBackend::setup(const std::string& queue, Parallel& threads) const {
  return {
      .name = queue, .threads = &threads, .clock = options_.clock, .observer = options_.observer};
}

QueueLimits CudaBackend::limits() const {
  return {.capacity = options_.queue_capacity,
          .spin = options_.spin,
          .enqueue_timeout = options_.enqueue_timeout};
}

Capabilities CudaBackend::capabilities() const noexcept {
  return {.host_reads_device = false, .pinned_host = true, .host_node = parts_->node};
}

Result<std::byte*> CudaBackend::do_allocate(const AllocationRequest& request) {
  Parts& parts = *parts_;
  TERRACE_TRY(parts.health.check());
  const bool on_device = request.tier == Tier::device;
  MemoryLedger& ledger = on_device ? parts.device_ledger : parts.host_ledger;
  TERRACE_TRY(ledger.take(request.bytes, request.purpose));
  Result<std::byte*> data = on_device
                                ? parts.device_pool.allocate(request.bytes, request.alignment)
                                : parts.host_memory->allocate(request.bytes, request.alignment);
  if (!data) {
    parts.health.note(data.error());
    ledger.give(request.bytes, request.purpose);
    return data;
  }
#ifndef NDEBUG
  if (const Status filled = fill_with_nan(*data, request); !filled) {
    do_release(*data, request);
    return tl::unexpected(filled.error());
  }
#endif
  return data;
}

void CudaBackend::do_release(std::byte* data, const AllocationRequest& request) noexcept {
  const bool on_device = request.tier == Tier::device;
  if (on_device) {
    parts_->device_pool.release(data, request.bytes);
  } else {
    parts_->host_memory->release(data, request.bytes);
  }
  (on_device ? parts_->device_ledger : parts_->host_ledger).give(request.bytes, request.purpose);
}

HostMemoryReport CudaBackend::host_memory_report() const { return parts_->host_memory->report(); }

}  // namespace terrace::offload
