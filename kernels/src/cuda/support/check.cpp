#include "support/check.hpp"

namespace terrace::cuda {
namespace {

/// Errors after which every call fails until the process ends.
bool is_fatal(cudaError_t answer) {
  switch (answer) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDevicesUnavailable:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

Error describe(cudaError_t answer, std::string_view doing) {
  const char* const name = cudaGetErrorName(answer);
  if (is_fatal(answer)) {
    return make_error(Errc::device_lost,
                      "{}: the device is lost ({}) with all that was on it; start the program "
                      "again, and see dmesg for Xid lines if that does not help",
                      doing, name);
  }
  switch (answer) {
    case cudaErrorMemoryAllocation:
      return make_error(Errc::out_of_memory, "{}: out of memory", doing);
    case cudaErrorInsufficientDriver:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSystemDriverMismatch:
      return make_error(Errc::unsupported,
                        "{}: the NVIDIA driver is missing or too old for CUDA {}.{}; install a "
                        "newer one, or use backend host",
                        doing, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return make_error(Errc::unsupported,
                        "{}: no such CUDA device; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use "
                        "backend host",
                        doing);
    case cudaErrorNoKernelImageForDevice:
      return make_error(Errc::unsupported,
                        "{}: this build has no code for the device, which is older than compute "
                        "capability 8.0; use backend host",
                        doing);
    default:
      return make_error(Errc::device_error, "{}: {} ({})", doing, cudaGetErrorString(answer), name);
  }
}

}  // namespace

Status check(cudaError_t answer, std::string_view doing) {
  if (answer == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  Error error = describe(answer, doing);
  error.native = static_cast<std::int32_t>(answer);
  return tl::unexpected(error);
}

Result<bool> check_done(cudaError_t answer, std::string_view doing) {
  if (answer == cudaErrorNotReady) return false;
  TERRACE_TRY(check(answer, doing));
  return true;
}

Result<bool> check_supported(cudaError_t answer, std::string_view doing) {
  if (answer == cudaErrorNotSupported || answer == cudaErrorCallRequiresNewerDriver) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  TERRACE_TRY(check(answer, doing));
  return true;
}

}  // namespace terrace::cuda
