// Finds out which device there is, and whether Terrace can use it.
#include <cuda_runtime.h>

#include <array>

#include "support/check.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"

namespace terrace::offload {
namespace {

using cuda::check;

constexpr int capability_min = 80;
constexpr int driver_min = CUDART_VERSION / 1000 * 1000;  // any driver of the same major version

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

Result<int> usable_driver() {
  int version = 0;
  TERRACE_TRY(check(cudaDriverGetVersion(&version), "asking for the NVIDIA driver"));
  if (version == 0) {
    return fail(Errc::unsupported,
                "no NVIDIA driver is installed: install one for CUDA {} or newer, or use backend "
                "host",
                version_text(driver_min));
  }
  if (version < driver_min) {
    return fail(Errc::unsupported,
                "the NVIDIA driver is for CUDA {}, this program needs {}: install a newer driver, "
                "or use backend host",
                version_text(version), version_text(driver_min));
  }
  return version;
}

Result<int> attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  TERRACE_TRY(check(cudaDeviceGetAttribute(&value, which, device), "asking for the device"));
  return value;
}

}  // namespace

Result<CudaDeviceReport> CudaBackend::probe(int device) {
  CudaDeviceReport report;
  TERRACE_ASSIGN(report.driver_version, usable_driver());
  int count = 0;
  TERRACE_TRY(check(cudaGetDeviceCount(&count), "looking for devices"));
  if (device < 0 || device >= count) {
    return fail(Errc::unsupported,
                "no CUDA device {}: {} are visible; see nvidia-smi and CUDA_VISIBLE_DEVICES",
                device, count);
  }
  cudaDeviceProp properties{};
  TERRACE_TRY(check(cudaGetDeviceProperties(&properties, device), "asking for the device"));
  report.name = properties.name;
  report.memory_bytes = properties.totalGlobalMem;
  TERRACE_ASSIGN(const int major, attribute(cudaDevAttrComputeCapabilityMajor, device));
  TERRACE_ASSIGN(const int minor, attribute(cudaDevAttrComputeCapabilityMinor, device));
  report.capability = major * 10 + minor;
  if (report.capability < capability_min) {
    return fail(Errc::unsupported,
                "device {} ({}) has compute capability {}.{}, and {}.{} is needed; use backend "
                "host",
                device, report.name, major, minor, capability_min / 10, capability_min % 10);
  }
  TERRACE_ASSIGN(const int same_addresses,
                 attribute(cudaDevAttrCanUseHostPointerForRegisteredMem, device));
  if (same_addresses == 0) {
    return fail(Errc::unsupported,
                "device {} ({}) cannot read locked host memory at the host's addresses; use "
                "backend host",
                device, report.name);
  }
  TERRACE_ASSIGN(const int node, attribute(cudaDevAttrHostNumaId, device));
  if (node >= 0) report.numa_node = static_cast<std::uint32_t>(node);
  std::array<char, 32> bus{};
  TERRACE_TRY(check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device),
                    "asking for the device"));
  report.pci_bus = bus.data();
  return report;
}

}  // namespace terrace::offload
