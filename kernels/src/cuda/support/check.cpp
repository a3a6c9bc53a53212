#include "support/check.hpp"

#include <optional>

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
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

/// Returns the error if CUDA cannot be used at all: it says what to install, or to choose.
std::optional<Error> not_there(cudaError_t answer, std::string_view doing) {
  switch (answer) {
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
      return std::nullopt;
  }
}

/// Returns what is wrong with a device that is there; null where CUDA's own words have to do.
const char* advice(cudaError_t answer) {
  switch (answer) {
    case cudaErrorDevicesUnavailable:
      return "the device is taken: another program may have it alone (nvidia-smi -q -d COMPUTE "
             "says Exclusive_Process or Prohibited); end it, or have nvidia-smi -c DEFAULT run";
    case cudaErrorInitializationError:
      return "CUDA does not start: see whether nvidia-smi works and /dev/nvidia* may be opened "
             "here, and whether this process was forked from one that uses CUDA";
    case cudaErrorSystemNotReady:
      return "the system is not ready for CUDA: have nvidia-persistenced and, where GPUs are "
             "joined by NVSwitch, nvidia-fabricmanager started";
    default:
      return nullptr;
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
  if (answer == cudaErrorMemoryAllocation) {
    return make_error(Errc::out_of_memory, "{}: out of memory", doing);
  }
  if (const auto absence = not_there(answer, doing)) return *absence;
  const char* const hint = advice(answer);
  return make_error(Errc::device_error, "{}: {} ({})", doing,
                    hint != nullptr ? hint : cudaGetErrorString(answer), name);
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
