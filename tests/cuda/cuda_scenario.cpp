// The runtime's tests on the backend for CUDA.
#include "runtime/scenario.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"

namespace terrace::testing {

const std::size_t scenario_slowness = 10;

std::unique_ptr<Backend> make_scenario_backend(const offload::HostBackendOptions& options) {
  return offload::CudaBackend::create({.device_memory_limit = options.device_memory_limit,
                                       .host_memory_limit = options.host_memory_limit,
                                       .host_threads = options.device_threads,
                                       .observer = options.observer})
      .value();
}

}  // namespace terrace::testing
