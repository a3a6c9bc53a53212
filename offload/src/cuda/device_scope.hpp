// The device that CUDA's calls of a thread mean, and how they stand to captures, for a while.
#pragma once

#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Keeps CUDA's calls of the calling thread and captures of streams into graphs apart. While an
/// embedder captures a stream, CUDA forbids threads to ask streams how far they are, or to
/// allocate: such a call fails, and the capture with it. Terrace's calls mean no stream that is
/// captured, so that they are made in the relaxed mode (cudaThreadExchangeStreamCaptureMode).
class BesideCaptures {
 public:
  BesideCaptures() noexcept;
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  int before_;  ///< the thread's own mode
};

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
  BesideCaptures beside_captures_;
};

}  // namespace terrace::offload
