#include "arithmetic.hpp"

// The one place of the engine that knows what was compiled in.
#ifndef TERRACE_HAS_CUDA
#define TERRACE_HAS_CUDA 0
#endif

namespace terrace::engine {

Result<std::unique_ptr<Arithmetic>> make_arithmetic(const LlamaModel& model, Backend& backend,
                                                    Queue& compute,
                                                    const ArithmeticOptions& options) {
  if (backend.capabilities().host_reads_device) {
    return make_host_arithmetic(model, backend, compute, options);
  }
#if TERRACE_HAS_CUDA
  if (backend.name() == "cuda") return make_cuda_arithmetic(model, backend, compute, options);
#endif
  return fail(Errc::unsupported, "the engine has no kernels for backend {}", backend.name());
}

}  // namespace terrace::engine
