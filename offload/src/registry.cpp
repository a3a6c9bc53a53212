#include "terrace/offload/registry.hpp"

#include <array>
#include <utility>

namespace terrace::offload {
namespace {

constexpr std::array<BackendInfo, 3> backends{{
    {.name = "cuda", .available = false, .reason = "this build has no CUDA backend"},
    {.name = "host", .available = true, .reason = "kernels and queues on the CPU"},
    {.name = "sim", .available = true, .reason = "costs only, in virtual time; moves no bytes"},
}};

Result<ChosenBackend> make_host(const BackendOptions& options, std::string_view reason) {
  TERRACE_ASSIGN(auto backend, HostBackend::create(options.host));
  return ChosenBackend{std::move(backend), "host", reason};
}

}  // namespace

Result<ChosenBackend> make_backend(std::string_view name, const BackendOptions& options) {
  if (name == "auto") return make_host(options, "auto: this build has no CUDA backend");
  if (name == "host") return make_host(options, "asked for");
  if (name == "cuda") {
    return fail(Errc::unsupported, "backend cuda: {}; use host", backends[0].reason);
  }
  if (name == "sim") {
    TERRACE_ASSIGN(auto backend, SimBackend::create(options.sim));
    return ChosenBackend{std::move(backend), "sim", "asked for"};
  }
  return fail(Errc::invalid_argument, "no backend '{}'; use auto, host, cuda or sim", name);
}

std::span<const BackendInfo> list_backends() noexcept { return backends; }

}  // namespace terrace::offload
