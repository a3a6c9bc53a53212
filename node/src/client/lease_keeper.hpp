// Keeps leases alive however idle those are who have them: a thread renews each before its end.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "leased_parts.hpp"

namespace terrace::node {

/// Threads  safe from any thread
class LeaseKeeper {
 public:
  LeaseKeeper() = default;
  LeaseKeeper(const LeaseKeeper&) = delete;
  LeaseKeeper& operator=(const LeaseKeeper&) = delete;
  /// Waits for a renewal that is under way: until a client's deadline.
  ~LeaseKeeper();

  /// Renews the lease from now on, as long as somebody has it.
  void keep(const std::shared_ptr<LeasedParts>& parts);
  /// Renews the leases that are due: half of their time is over.
  void renew();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<std::weak_ptr<LeasedParts>> kept_;
  Duration shortest_ = Duration::max();  ///< lease of those that were kept
  bool ends_ = false;
  std::thread thread_;  ///< begins with the first lease
};

}  // namespace terrace::node
