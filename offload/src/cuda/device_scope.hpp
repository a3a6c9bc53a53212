// The device that CUDA's calls of a thread mean, for a while.
#pragma once

#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Makes a device the calling thread's, and gives the thread its own back: work is put on streams
/// by threads of embedders, too.
class DeviceScope {
 public:
  explicit DeviceScope(int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

  /// Errors: why the device could not be chosen.
  [[nodiscard]] const Status& status() const noexcept { return status_; }

 private:
  int device_;
  int before_;
  Status status_;
};

}  // namespace terrace::offload
