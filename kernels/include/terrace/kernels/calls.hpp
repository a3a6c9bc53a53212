// Running a batch of calls of a kernel on the host.
//
//   for_each_call(calls, threads, host::pq_select);
//
// Not here: calls of a device's kernels, which take a batch themselves (cuda/ops.hpp).
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <type_traits>

#include "terrace/core/parallel.hpp"

namespace terrace::kernels::host {

/// Calls kernel(call, threads) for each call, and returns the sum of their results, 0 for a kernel
/// without a result. If there are at least as many calls as threads, each call runs on one thread;
/// otherwise all threads share one call after the other: kernels give the same bits on any number
/// of threads.
///
/// Limits   calls share no memory that is written; a call is one part: the longest may end alone
/// Threads  at most one part per call; allocates nothing
/// Tests    tests/kernels/batch_test.cpp, tests/kernels/threads_test.cpp
template <typename Arguments, typename Kernel>
std::size_t for_each_call(std::span<const Arguments> calls, Parallel& threads, Kernel kernel) {
  const auto run = [&](const Arguments& call, Parallel& of_call) {
    if constexpr (std::is_void_v<decltype(kernel(call, of_call))>) {
      kernel(call, of_call);
      return std::size_t{0};
    } else {
      return kernel(call, of_call);
    }
  };
  if (calls.size() == 1 || calls.size() < threads.concurrency()) {
    std::size_t sum = 0;
    for (const Arguments& call : calls) sum += run(call, threads);
    return sum;
  }
  std::atomic<std::size_t> sum{0};
  threads.for_each(calls.size(), [&](std::size_t i) {
    Serial alone;
    sum.fetch_add(run(calls[i], alone), std::memory_order_relaxed);
  });
  return sum;
}

}  // namespace terrace::kernels::host
