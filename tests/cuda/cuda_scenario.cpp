// The runtime's tests on the backend for CUDA.
#include "runtime/scenario.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"

namespace terrace::testing {

// The thread sanitizer watches each access of each fiber.
#ifdef __SANITIZE_THREAD__
const std::size_t scenario_slowness = 30;
#else
const std::size_t scenario_slowness = 10;
#endif

std::unique_ptr<Backend> make_scenario_backend(const offload::HostBackendOptions& options) {
  return offload::CudaBackend::create({.device_memory_limit = options.device_memory_limit,
                                       .host_memory_limit = options.host_memory_limit,
                                       .host_threads = options.device_threads,
                                       .observer = options.observer})
      .value();
}

}  // namespace terrace::testing
