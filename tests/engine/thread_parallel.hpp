// A Parallel of plain threads, so that tests can say how many there are.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "terrace/core/parallel.hpp"

namespace terrace {

class ThreadParallel final : public Parallel {
 public:
  explicit ThreadParallel(std::size_t threads) : threads_(threads) {}

  [[nodiscard]] std::size_t concurrency() const noexcept override { return threads_; }

  void for_each(std::size_t count, FunctionRef<void(std::size_t)> part) override {
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < count; i = next++) part(i);
    };
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads_; ++i) others.emplace_back(work);
    work();
  }

 private:
  std::size_t threads_;
};

}  // namespace terrace
