// The runtime's tests on the backend of the host.
#include "runtime/scenario.hpp"

namespace terrace::testing {

const std::size_t scenario_slowness = 1;

std::unique_ptr<Backend> make_scenario_backend(const offload::HostBackendOptions& options,
                                               doubles::SeededScheduler* scheduler) {
  auto backend = offload::HostBackend::create(options).value();
  return scheduler == nullptr ? std::move(backend) : scheduler->wrap(std::move(backend));
}

OwnQueue make_own_queue(Backend& backend) {
  return {nullptr, offload::make_caller_queue(backend, {}).value()};
}

}  // namespace terrace::testing
