// Events of a backend's queues: as many as mark places in streams that are not known to be reached.
#pragma once

#include <cuda_runtime.h>

#include <mutex>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Threads  safe from any thread
class EventPool {
 public:
  /// `timed`: whether times between events are measured. Events without are quicker.
  explicit EventPool(bool timed) noexcept : timed_(timed) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// Takes an event of the calling thread's device.
  [[nodiscard]] Result<cudaEvent_t> take();

  /// Takes an event and records it on a stream of the calling thread's device.
  [[nodiscard]] Result<cudaEvent_t> record(cudaStream_t stream);

  /// Takes back what no stream has before it any more.
  void give(cudaEvent_t event);

 private:
  bool timed_;
  std::mutex mutex_;  ///< guards free_
  std::vector<cudaEvent_t> free_;
};

}  // namespace terrace::offload
