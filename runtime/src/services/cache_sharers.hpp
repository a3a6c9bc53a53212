// How many sequences share the memory of the resident cache.
#pragma once

#include <atomic>
#include <cstddef>

namespace terrace {

/// Threads  safe from any thread
class CacheSharers {
 public:
  void enter() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  void leave() noexcept { count_.fetch_sub(1, std::memory_order_relaxed); }
  [[nodiscard]] std::size_t count() const noexcept {
    return count_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::size_t> count_{0};
};

}  // namespace terrace
