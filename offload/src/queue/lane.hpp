// A thread that carries out the work of queues: each queue's in its order, those of several queues
// in turn.
//
// A queue that has work announces itself; the thread takes the queues that did in turn and runs a
// few pieces of each. A queue whose next piece waits for another queue steps back until that is
// done, so that it holds up no other queue of the lane.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"
#include "terrace/offload/thread.hpp"

namespace terrace::offload {

/// A queue as a lane sees it.
class LaneMember {
 public:
  LaneMember() = default;
  LaneMember(const LaneMember&) = delete;
  LaneMember& operator=(const LaneMember&) = delete;
  virtual ~LaneMember() = default;

  /// Runs up to `most` pieces of work. Returns whether the member is to have another turn; if not,
  /// it announces itself when there is something to do. On the lane's thread.
  virtual bool take_turn(std::size_t most) = 0;
};

/// Threads  announce and leave from any thread
class Lane {
 public:
  /// Errors: out_of_memory: the system has no thread left.
  static Result<std::shared_ptr<Lane>> create(const std::string& name, Duration spin);

  /// All members must have left.
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Gives the member a turn. A member announces itself once, until it has had its last turn.
  void announce(LaneMember& member);

  /// Takes the member out, which is given the rest of its turns on the caller's thread. The member
  /// must have nothing left that takes long, and must not announce itself any more.
  void leave(LaneMember& member);

 private:
  explicit Lane(Duration spin) : spin_(spin) {}
  void serve();
  /// Returns the next member, or null once the lane ends.
  LaneMember* next();

  Duration spin_;
  std::mutex mutex_;
  std::deque<LaneMember*> announced_;
  const LaneMember* in_turn_ = nullptr;
  std::condition_variable turn_over_;
  bool ending_ = false;
  /// Counts announcements, for a thread that looks without the mutex, spinning or asleep.
  std::atomic<std::uint32_t> announcements_{0};
  std::atomic<bool> asleep_{false};
  Thread thread_;
};

}  // namespace terrace::offload
