// A Parallel of real threads, started anew for each job: slow, plain, and in no fixed order.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "terrace/core/parallel.hpp"

namespace terrace::testing {

class PartThreads final : public Parallel {
 public:
  explicit PartThreads(std::size_t count) : count_(count) {}

  [[nodiscard]] std::size_t concurrency() const noexcept override { return count_; }

  void for_each(std::size_t count, FunctionRef<void(std::size_t)> part) override {
    // Parts are given to threads from the last to the first, unlike in Serial.
    std::atomic<std::size_t> left{count};
    const auto work = [&] {
      for (std::size_t i = left.load(); i > 0;) {
        if (left.compare_exchange_weak(i, i - 1)) {
          part(i - 1);
          i = left.load();
        }
      }
    };
    std::vector<std::jthread> threads;
    for (std::size_t t = 1; t < count_; ++t) threads.emplace_back(work);
    work();
  }

 private:
  std::size_t count_;
};

}  // namespace terrace::testing
