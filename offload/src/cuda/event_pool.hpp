// Events of a backend's queues: as many as there are pieces that a device was told of and has not
// done.
#pragma once

#include <cuda_runtime.h>

#include <mutex>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace::offload {

/// Where the work of a piece begins in its stream, and where it ends with all work before it.
struct EventPair {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

/// Threads  safe from any thread
class EventPool {
 public:
  EventPool() = default;
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  /// Takes events of the calling thread's device.
  [[nodiscard]] Result<EventPair> take();

  /// Takes back what no stream has before it any more.
  void give(const EventPair& events);

 private:
  std::mutex mutex_;  ///< guards free_
  std::vector<EventPair> free_;
};

}  // namespace terrace::offload
