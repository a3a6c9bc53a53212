#include "terrace/offload/registry.hpp"

#include <array>
#include <utility>

#include "terrace/offload/cuda/wrap_queue.hpp"

// The one place that knows what was compiled in.
#ifndef TERRACE_HAS_CUDA
#define TERRACE_HAS_CUDA 0
#endif

namespace terrace::offload {
namespace {

#if TERRACE_HAS_CUDA
Result<std::unique_ptr<Backend>> make_cuda(const CudaBackendOptions& options) {
  return CudaBackend::create(options);
}
#else
Result<std::unique_ptr<Backend>> make_cuda(const CudaBackendOptions& /*options*/) {
  return fail(Errc::unsupported,
              "this build has no CUDA backend: build preset cuda-release, or use backend "
              "host");
}
#endif

/// Looks for a device without making a backend of it. Returns its name.
Result<std::string> find_cuda([[maybe_unused]] int device) {
#if TERRACE_HAS_CUDA
  return CudaBackend::probe(device).map([](const CudaDeviceReport& report) { return report.name; });
#else
  return tl::unexpected(make_cuda({}).error());
#endif
}

Result<ChosenBackend> make_host(const BackendOptions& options, std::string reason) {
  TERRACE_ASSIGN(auto backend, HostBackend::create(options.host));
  return ChosenBackend{std::move(backend), {"host", std::move(reason), ""}};
}

Result<ChosenBackend> make_device(const BackendOptions& options, std::string reason) {
  TERRACE_ASSIGN(std::string device, find_cuda(options.cuda.device));
  TERRACE_ASSIGN(auto backend, make_cuda(options.cuda));
  return ChosenBackend{std::move(backend), {"cuda", std::move(reason), std::move(device)}};
}

/// A device that can be used is used; a fault of it is reported, and not covered up by another
/// backend. The host is taken only where there is nothing to be used.
Result<ChosenBackend> make_best(const BackendOptions& options) {
  const Result<std::string> device = find_cuda(options.cuda.device);
  if (!device && device.error().code == Errc::unsupported) {
    return make_host(options, fmt::format("auto: {}", device.error().message()));
  }
  return make_device(options, "auto: the best there is").map_error([](const Error& error) {
    return error.while_doing("backend auto");
  });
}

}  // namespace

Result<ChosenBackend> make_backend(std::string_view name, const BackendOptions& options) {
  if (name == "auto") return make_best(options);
  if (name == "host") return make_host(options, "asked for");
  if (name == "cuda") {
    return make_device(options, "asked for").map_error([](const Error& error) {
      return error.while_doing("backend cuda");
    });
  }
  return fail(Errc::invalid_argument, "no backend '{}'; use auto, host or cuda", name);
}

Result<std::unique_ptr<Queue>> wrap_stream([[maybe_unused]] Backend& backend,
                                           [[maybe_unused]] void* stream,
                                           [[maybe_unused]] const CallerQueueOptions& options) {
#if TERRACE_HAS_CUDA
  return wrap_queue(backend, static_cast<cudaStream_t>(stream), options);
#else
  return tl::unexpected(make_cuda({}).error());
#endif
}

std::vector<BackendInfo> list_backends() {
  const Result<std::string> device = find_cuda(0);
  return {{"cuda", device.has_value(), device ? *device : std::string(device.error().message())},
          {"host", true, "kernels and queues on the CPU"}};
}

}  // namespace terrace::offload
