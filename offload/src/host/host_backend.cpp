#include "terrace/offload/host_backend.hpp"

#include <cstring>
#include <utility>

#include "host_executor.hpp"
#include "queue/caller_queue.hpp"
#include "queue/named_lanes.hpp"
#include "queue/worker_queue.hpp"
#include "terrace/offload/host_ops.hpp"
#include "terrace/offload/parallel.hpp"

namespace terrace::offload {
namespace {

Status validate(const HostBackendOptions& options) {
  if (options.link.bandwidth_bytes_per_second < 0 || options.link.latency < Duration{}) {
    return fail(Errc::invalid_argument, "link: bandwidth and latency must not be negative");
  }
  if (options.queue_capacity == 0) {
    return fail(Errc::invalid_argument, "queue_capacity must be at least 1");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> HostBackend::create(const HostBackendOptions& options) {
  TERRACE_TRY(validate(options));
  std::unique_ptr<HostBackend> backend(new HostBackend(options));
  TERRACE_ASSIGN(backend->device_threads_,
                 make_parallel({.threads = options.device_threads, .name = "device"}));
  HostMemoryOptions memory{.huge_pages = options.huge_pages,
                           .parallel = backend->device_threads_.get()};
  TERRACE_ASSIGN(backend->device_.memory, HostMemory::create(memory));
  memory.numa_node = options.numa_node;
  TERRACE_ASSIGN(backend->host_.memory, HostMemory::create(memory));
  return backend;
}

HostBackend::HostBackend(const HostBackendOptions& options)
    : options_(options),
      link_(options.link),
      lanes_(std::make_unique<NamedLanes>(options.spin)),
      device_{.ledger = {"device.memory", options.device_memory_limit}, .memory = nullptr},
      host_{.ledger = {"host.memory", options.host_memory_limit}, .memory = nullptr} {
  if (options_.clock == nullptr) options_.clock = &steady_clock_;
}

HostBackend::~HostBackend() = default;

const Ops& HostBackend::ops() const noexcept { return host_ops(); }

Result<std::unique_ptr<Queue>> HostBackend::make(const QueueOptions& options, Parallel& threads,
                                                 Link* link) {
  return WorkerQueue::create(executor(options.name, threads, link),
                             {.limits = {.capacity = options_.queue_capacity,
                                         .spin = options_.spin,
                                         .enqueue_timeout = options_.enqueue_timeout},
                              .lanes = lanes_.get(),
                              .lane = options.lane});
}

std::unique_ptr<HostExecutor> HostBackend::executor(const std::string& queue, Parallel& threads,
                                                    Link* link) const {
  return std::make_unique<HostExecutor>(ExecutorSetup{.name = queue,
                                                      .threads = &threads,
                                                      .clock = options_.clock,
                                                      .observer = options_.observer},
                                        link);
}

Result<std::unique_ptr<Queue>> make_caller_queue(Backend& backend,
                                                 const CallerQueueOptions& options) {
  auto* const host = dynamic_cast<HostBackend*>(&backend);
  if (host == nullptr) {
    return fail(Errc::invalid_argument,
                "queue {}: backend {} does not compute on threads of the host; on cuda, "
                "wrap_queue() takes a stream",
                options.name, backend.name());
  }
  return std::make_unique<CallerQueue>(
      host->executor(options.name, *host->device_threads_, &host->link_),
      QueueLimits{.capacity = host->options_.queue_capacity,
                  .spin = host->options_.spin,
                  .enqueue_timeout = options.wait_timeout});
}

Result<std::unique_ptr<Queue>> HostBackend::make_queue(const QueueOptions& options) {
  return make(options, *device_threads_, &link_);
}

Result<std::unique_ptr<Queue>> HostBackend::make_host_queue(const QueueOptions& options) {
  return make(options, own_thread_, nullptr);
}

MemoryUsage HostBackend::memory(Tier tier) const noexcept {
  return has(tier) ? arena(tier).ledger.usage() : MemoryUsage{};
}

void HostBackend::set_limit(Tier tier, std::size_t bytes) noexcept {
  if (has(tier)) arena(tier).ledger.set_limit(bytes);
}

void HostBackend::reset_peak() noexcept {
  device_.ledger.reset_peak();
  host_.ledger.reset_peak();
}

std::size_t HostBackend::in_use(Tier tier, Purpose purpose) const noexcept {
  return has(tier) ? arena(tier).ledger.in_use(purpose) : 0;
}

HostMemoryReport HostBackend::host_memory_report() const { return host_.memory->report(); }

Result<std::byte*> HostBackend::do_allocate(const AllocationRequest& request) {
  Arena& from = arena(request.tier);
  TERRACE_TRY(from.ledger.take(request.bytes, request.purpose));
  auto data = from.memory->allocate(request.bytes, request.alignment);
  if (!data) {
    from.ledger.give(request.bytes, request.purpose);
    return data;
  }
#ifndef NDEBUG
  std::memset(*data, 0xff, request.bytes);  // NaN in every floating dtype
#endif
  return data;
}

void HostBackend::do_release(std::byte* data, const AllocationRequest& request) noexcept {
  Arena& to = arena(request.tier);
  to.memory->release(data, request.bytes);
  to.ledger.give(request.bytes, request.purpose);
}

}  // namespace terrace::offload
