// Backends that need no device.
#include "contract/backend_case.hpp"
#include "doubles/fault_backend.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace {
namespace {

using doubles::FaultBackend;
using offload::HostBackend;
using offload::HostBackendOptions;

HostBackendOptions host_options(const CaseLimits& limits) {
  return {.device_memory_limit = limits.device_bytes,
          .host_memory_limit = limits.host_bytes,
          .device_threads = 2};
}

MadeBackend make_threads(const CaseLimits& limits) {
  return {nullptr, HostBackend::create(host_options(limits)).value()};
}

MadeBackend make_small_ring(const CaseLimits& limits) {
  HostBackendOptions options = host_options(limits);
  options.queue_capacity = 8;
  return {nullptr, HostBackend::create(options).value()};
}

MadeBackend make_seeded(const CaseLimits& limits, std::uint64_t seed) {
  auto scheduler = std::make_unique<doubles::SeededScheduler>(seed);
  auto backend = scheduler->wrap(HostBackend::create(host_options(limits)).value());
  return {std::move(scheduler), std::move(backend)};
}

MadeBackend with_faults(MadeBackend made) {
  made.backend = FaultBackend::wrap(std::move(made.backend));
  return made;
}

MadeBackend make_caller_queues(const CaseLimits& limits) {
  MadeBackend made = make_threads(limits);
  made.make_queue = [](Backend& backend, const char* name) {
    return offload::make_caller_queue(backend, {.name = name}).value();
  };
  return made;
}

}  // namespace

std::vector<BackendCase> backend_cases() {
  std::vector<BackendCase> cases{
      {"HostThreads", Runs::beside, make_threads},
      {"HostCallerQueues", Runs::at_once, make_caller_queues},
      {"HostSmallRing", Runs::beside, make_small_ring},
      {"FaultOverThreads", Runs::beside,
       [](const auto& limits) { return with_faults(make_threads(limits)); }},
      {"FaultOverSeeded", Runs::when_waited_for,
       [](const auto& limits) { return with_faults(make_seeded(limits, 7)); }}};
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U, 5U}) {
    cases.push_back({"HostSeed" + std::to_string(seed), Runs::when_waited_for,
                     [seed](const auto& limits) { return make_seeded(limits, seed); }});
  }
  return cases;
}

}  // namespace terrace
