// A sleep that its end can cut short.
#pragma once

#include <condition_variable>
#include <mutex>

#include "terrace/core/clock.hpp"

namespace terrace::offload {

/// Threads  safe from any thread
class Pause {
 public:
  /// Sleeps until a time; less once cut_short() is called.
  void until(TimePoint time);

  /// Ends all pauses, those to come too.
  void cut_short() noexcept;

 private:
  std::mutex mutex_;  ///< guards over_
  std::condition_variable ended_;
  bool over_ = false;
};

}  // namespace terrace::offload
