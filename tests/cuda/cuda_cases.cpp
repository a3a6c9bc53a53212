// The backend for CUDA: on a device, or on the stand-in, whichever the program is linked with.
#include <cuda_runtime.h>

#include "contract/backend_case.hpp"
#include "doubles/fault_backend.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"
#include "terrace/offload/cuda/wrap_queue.hpp"

namespace terrace {
namespace {

using offload::CudaBackend;
using offload::CudaBackendOptions;

MadeBackend make(const CudaBackendOptions& options) {
  if (!CudaBackend::probe(options.device)) return {};
  return {nullptr, CudaBackend::create(options).value()};
}

CudaBackendOptions cuda_options(const CaseLimits& limits) {
  return {.device_memory_limit = limits.device_bytes,
          .host_memory_limit = limits.host_bytes,
          .host_threads = 2};
}

MadeBackend make_cuda(const CaseLimits& limits) { return make(cuda_options(limits)); }

MadeBackend make_small_ring(const CaseLimits& limits) {
  CudaBackendOptions options = cuda_options(limits);
  options.queue_capacity = 8;
  return make(options);
}

MadeBackend make_copying_by_kernel(const CaseLimits& limits) {
  CudaBackendOptions options = cuda_options(limits);
  options.switch_over_bytes = std::size_t{1} << 30;
  return make(options);
}

MadeBackend make_with_faults(const CaseLimits& limits) {
  MadeBackend made = make_cuda(limits);
  if (made.backend) made.backend = doubles::FaultBackend::wrap(std::move(made.backend));
  return made;
}

/// Streams of an embedder.
class Streams {
 public:
  Streams() = default;
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  ~Streams() {
    for (const cudaStream_t each : all_) EXPECT_EQ(cudaStreamDestroy(each), cudaSuccess);
  }
  cudaStream_t make() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0), cudaSuccess);
    return all_.emplace_back(stream);
  }

 private:
  std::vector<cudaStream_t> all_;
};

MadeBackend make_wrapped_streams(const CaseLimits& limits) {
  MadeBackend made = make_cuda(limits);
  made.make_queue = [streams = std::make_shared<Streams>()](Backend& backend, const char* name) {
    return offload::wrap_queue(backend, streams->make(), {.name = name}).value();
  };
  return made;
}

/// The default stream of the device, which is PyTorch's, for all queues of a test.
MadeBackend make_default_stream(const CaseLimits& limits) {
  MadeBackend made = make_cuda(limits);
  made.make_queue = [](Backend& backend, const char* name) {
    return offload::wrap_queue(backend, nullptr, {.name = name}).value();
  };
  return made;
}

}  // namespace

std::vector<BackendCase> backend_cases() {
  return {{"Cuda", Runs::beside, make_cuda},
          {"CudaCopiesByKernel", Runs::beside, make_copying_by_kernel},
          {"CudaWrappedStreams", Runs::at_once, make_wrapped_streams},
          {"CudaDefaultStream", Runs::at_once, make_default_stream},
          {"CudaSmallRing", Runs::beside, make_small_ring},
          {"FaultOverCuda", Runs::beside, make_with_faults}};
}

}  // namespace terrace
