#include "pcie/driver_memory.hpp"

#ifdef TERRACE_HAS_CUDA
#include <cuda_runtime.h>

#include "support/check.hpp"
#endif

namespace terrace::bench {

#ifdef TERRACE_HAS_CUDA
Result<DriverMemory> allocate_by_driver(std::size_t bytes) {
  void* data = nullptr;
  TERRACE_TRY(cuda::check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), "cudaHostAlloc"));
  return DriverMemory(static_cast<std::byte*>(data), [](std::byte* memory) {
    static_cast<void>(cuda::check(cudaFreeHost(memory), "cudaFreeHost"));
  });
}
#else
Result<DriverMemory> allocate_by_driver(std::size_t /*bytes*/) {
  return fail(Errc::unsupported, "this build has no CUDA backend: build preset cuda-release");
}
#endif

}  // namespace terrace::bench
