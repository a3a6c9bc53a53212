// The runtime's tests on the backend for CUDA.
#include <cuda_runtime.h>

#include "runtime/scenario.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"
#include "terrace/offload/cuda/wrap_queue.hpp"

namespace terrace::testing {

// The thread sanitizer watches each access of each fiber.
#ifdef __SANITIZE_THREAD__
const std::size_t scenario_slowness = 30;
#else
const std::size_t scenario_slowness = 10;
#endif

std::unique_ptr<Backend> make_scenario_backend(const offload::HostBackendOptions& options,
                                               doubles::SeededScheduler* /*scheduler*/) {
  return offload::CudaBackend::create({.device_memory_limit = options.device_memory_limit,
                                       .host_memory_limit = options.host_memory_limit,
                                       .host_threads = options.device_threads,
                                       .observer = options.observer})
      .value();
}

OwnQueue make_own_queue(Backend& backend) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
  return {{stream, [](void* of) { cudaStreamDestroy(static_cast<cudaStream_t>(of)); }},
          offload::wrap_queue(backend, stream, {}).value()};
}

}  // namespace terrace::testing
