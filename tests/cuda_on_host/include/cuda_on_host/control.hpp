// The traits and the faults of the stand-in device, made to order by tests.
//
//   cuda_on_host::Device device;            // one for a test; restores the default at its end
//   device.set({.memory_bytes = 1 << 20});
//   device.fail("cudaMalloc", {.nth = 3, .error = cudaErrorMemoryAllocation});
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

#include "cuda_runtime.h"

namespace cuda_on_host {

struct DeviceTraits {
  int device_count = 1;
  bool driver = true;
  int driver_version = 13000;
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::size_t lockable_bytes = std::size_t{4} << 30;
  bool batched_copies = true;  ///< whether cudaMemcpyBatchAsync is supported
  bool host_pointers_of_registered = true;
  bool blocks_descending = false;  ///< blocks of a launch run from the last to the first
  bool waits_are_ignored = false;  ///< cudaStreamWaitEvent orders nothing: a fault to be found
};

/// Counts of the calls to the device since it was set.
struct DeviceCounts {
  std::uint64_t launches = 0;
  std::uint64_t copy_calls = 0;        ///< cudaMemcpyAsync
  std::uint64_t batch_calls = 0;       ///< cudaMemcpyBatchAsync
  std::uint64_t synchronizations = 0;  ///< calls that make the host wait for the device
  std::uint64_t event_records = 0;
  std::uint64_t event_queries = 0;
  std::uint64_t stream_waits = 0;      ///< cudaStreamWaitEvent
  std::uint64_t allocations = 0;       ///< of device memory, and of locked host memory
  std::uint64_t registered_bytes = 0;  ///< locked now
  std::uint64_t largest_registration = 0;
};

struct Fault {
  std::uint64_t nth = 1;  ///< call of the function that fails, from 1
  cudaError_t error = cudaErrorUnknown;
};

class Device {
 public:
  Device();
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  /// Sets traits and forgets faults and counts.
  void set(const DeviceTraits& traits);

  /// Makes a call of `function` return an error.
  void fail(std::string_view function, Fault fault);

  /// Makes the `nth` launch from now break the device while it runs. The first call that reports it
  /// waits until other streams' work has ended, so that work must not wait for the caller.
  void break_at_launch(std::uint64_t nth, cudaError_t error = cudaErrorIllegalAddress);

  /// Runs `call` on the thread that calls `function` next, before that call takes effect.
  void at_next(std::string_view function, std::function<void()> call);
  /// The same on each thread that calls it, each time.
  void at_each(std::string_view function, std::function<void()> call);

  /// Waits until all streams have done what they were told of, without a call to the device.
  void await_idle();

  [[nodiscard]] DeviceCounts counts() const;
};

}  // namespace cuda_on_host
