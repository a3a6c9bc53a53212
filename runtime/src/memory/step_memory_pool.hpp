// Memory of steps that no step uses now, with the buffers that earlier steps have allocated.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "step_memory.hpp"

namespace terrace {

/// Threads  safe from any thread
class StepMemoryPool {
 public:
  std::unique_ptr<StepMemory> lend();
  /// No work uses the memory any more.
  void take_back(std::unique_ptr<StepMemory> memory) noexcept;
  /// Gives up what is not lent. Returns whether there was any.
  bool release() noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<StepMemory>> unused_;
};

}  // namespace terrace
