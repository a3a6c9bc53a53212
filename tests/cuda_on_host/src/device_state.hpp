// The stand-in's one device: traits, faults, counts, and whether it is broken.
//
// The fields that streams read while they work are atomic, and relaxed but for the error that broke
// the device, stored once: a lock would order their work for the thread sanitizer and hide that
// nothing else does.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <string>

#include "cuda_on_host/control.hpp"

namespace cuda_on_host {

struct DeviceState {
  struct Hook {
    std::function<void()> call;
    bool once = true;
  };
  std::mutex mutex;  ///< guards faults, calls and hooks
  std::multimap<std::string, Fault, std::less<>> faults;
  std::map<std::string, std::uint64_t, std::less<>> calls;
  std::map<std::string, Hook, std::less<>> hooks;  ///< run before a call of that name
  std::atomic<bool> faults_armed{false};           ///< there are faults or hooks

  DeviceTraits traits;  ///< changed while no work is under way
  std::atomic<int> broken{cudaSuccess};
  std::atomic<std::uint64_t> breaking_launch{0};  ///< launches left before it; 0 = none
  std::atomic<int> breaking_error{cudaSuccess};

  std::atomic<std::uint64_t> launches{0};
  std::atomic<std::uint64_t> copy_calls{0};
  std::atomic<std::uint64_t> batch_calls{0};
  std::atomic<std::uint64_t> synchronizations{0};
  std::atomic<std::uint64_t> event_records{0};
  std::atomic<std::uint64_t> event_queries{0};
  std::atomic<std::uint64_t> stream_waits{0};
  std::atomic<std::uint64_t> allocations{0};

  /// Returns what a call of `function` has to fail with, or success.
  cudaError_t enter(const char* function);

  void add_hook(std::string_view function, Hook hook);
  /// Runs what a test wants before a call of `function`.
  void run_hook(std::string_view function);

  [[nodiscard]] bool is_broken() const { return broken.load() != 0; }

  /// Waits until the device is idle, and returns the error that broke it, or success.
  cudaError_t check_broken() const;
};

DeviceState& device_state();

/// Remembers `error` for cudaGetLastError on this thread and returns it.
cudaError_t report(cudaError_t error);

/// Leaves the calling function with the error that it is to fail with, if there is one.
#define CUDA_ON_HOST_ENTER(function)                                          \
  if (const cudaError_t error = cuda_on_host::device_state().enter(function); \
      error != cudaSuccess) {                                                 \
    return cuda_on_host::report(error);                                       \
  }

}  // namespace cuda_on_host
