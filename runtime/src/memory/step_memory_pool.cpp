#include "step_memory_pool.hpp"

namespace terrace {

std::unique_ptr<StepMemory> StepMemoryPool::lend() {
  const std::lock_guard lock(mutex_);
  if (unused_.empty()) return std::make_unique<StepMemory>();
  std::unique_ptr<StepMemory> memory = std::move(unused_.back());
  unused_.pop_back();
  return memory;
}

void StepMemoryPool::take_back(std::unique_ptr<StepMemory> memory) noexcept {
  const std::lock_guard lock(mutex_);
  unused_.push_back(std::move(memory));
}

bool StepMemoryPool::release() noexcept {
  const std::lock_guard lock(mutex_);
  const bool any = !unused_.empty();
  unused_.clear();
  return any;
}

}  // namespace terrace
