// Hands work over from the host to a stream's thread, and orders nothing else.
//
// A lock around a list would order the enqueuing thread after the stream's earlier work. A device
// gives no such order, and the thread sanitizer would overlook a missing event wait.
//
// Built without the sanitizer's instrumentation (CMakeLists.txt); the class itself declares the
// order.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>

namespace cuda_on_host {

class HandOver {
 public:
  using Work = std::function<void()>;

  /// Takes `work` over. The work sees everything that the caller did before.
  void push(Work* work);

  /// Waits for the next piece of work; null after stop(), when no work is left.
  Work* pop();

  /// Says that the work taken last is done.
  void finish();

  /// Waits until everything pushed so far is finished; what it did is visible to the caller.
  void wait_until_finished();

  void stop();

 private:
  std::atomic_flag busy_;  ///< guards work_
  std::deque<Work*> work_;
  std::atomic<std::uint32_t> pushed_{0};
  std::atomic<std::uint32_t> finished_{0};
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<bool> stopping_{false};
  char finish_order_ = 0;
};

}  // namespace cuda_on_host
