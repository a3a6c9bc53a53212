// A thread that looks what streams have done, for threads that sleep until then: one for all queues
// of a backend.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"
#include "terrace/offload/thread.hpp"

namespace terrace::offload {

/// A stream as its watch sees it.
class WatchedStream {
 public:
  WatchedStream() = default;
  WatchedStream(const WatchedStream&) = delete;
  WatchedStream& operator=(const WatchedStream&) = delete;
  virtual ~WatchedStream() = default;

  /// Publishes what is done. Returns whether there was anything.
  virtual bool look_once() = 0;
  /// Whether somebody waits for work that is left. If not, the stream announces itself when that is
  /// so again.
  virtual bool keep_watching() = 0;
};

/// Threads  announce and leave from any thread
class StreamWatch {
 public:
  /// Errors: out_of_memory: the system has no thread left.
  [[nodiscard]] static Result<std::unique_ptr<StreamWatch>> create(int device, Duration spin);

  /// All streams must have left.
  ~StreamWatch();
  StreamWatch(const StreamWatch&) = delete;
  StreamWatch& operator=(const StreamWatch&) = delete;

  /// Looks at the stream from now on, as long as it is to be watched.
  void announce(WatchedStream& stream);

  /// Looks at the stream no more, once this returns.
  void leave(WatchedStream& stream);

 private:
  StreamWatch(int device, Duration spin) : device_(device), spin_(spin) {}
  void serve();
  /// Looks at each stream once. Returns whether one has made progress.
  bool look_at_all(std::unique_lock<std::mutex>& lock);
  /// Lets time pass, more the longer nothing was done. Returns when there are streams to look at.
  void rest(std::unique_lock<std::mutex>& lock);

  int device_;
  Duration spin_;
  std::atomic<std::uint32_t> announcements_{0};
  std::mutex mutex_;  ///< guards all below
  std::condition_variable announced_;
  std::condition_variable looked_;
  std::deque<WatchedStream*> busy_;
  const WatchedStream* looking_at_ = nullptr;
  bool asleep_ = false;  ///< no stream is busy, and the thread has to be woken
  bool ending_ = false;
  TimePoint last_seen_{};  ///< when something was done last, or came
  Duration pause_{};
  Thread thread_;
};

}  // namespace terrace::offload
