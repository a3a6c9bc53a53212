#include "device_scope.hpp"

#include <cuda_runtime.h>

#include "support/check.hpp"

namespace terrace::offload {

using cuda::check;

namespace {

/// Returns the mode that the calling thread had before.
int exchange_mode(int mode) noexcept {
  auto exchanged = static_cast<cudaStreamCaptureMode>(mode);
  const Status done =
      check(cudaThreadExchangeStreamCaptureMode(&exchanged), "setting the mode of captures");
  return done ? static_cast<int>(exchanged) : mode;
}

}  // namespace

BesideCaptures::BesideCaptures() noexcept : before_(exchange_mode(cudaStreamCaptureModeRelaxed)) {}
BesideCaptures::~BesideCaptures() { exchange_mode(before_); }

DeviceScope::DeviceScope(int device) : device_(device), before_(device) {
  status_ = check(cudaGetDevice(&before_), "asking for the device");
  if (status_ && before_ != device_) status_ = check(cudaSetDevice(device_), "choosing the device");
}

DeviceScope::~DeviceScope() {
  if (before_ != device_) static_cast<void>(check(cudaSetDevice(before_), "choosing the device"));
}

}  // namespace terrace::offload
