// The lanes of a backend, by name: each is made when a queue first needs it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "lane.hpp"

namespace terrace::offload {

/// Threads  safe from any thread
class NamedLanes {
 public:
  explicit NamedLanes(Duration spin) noexcept : spin_(spin) {}

  /// Returns the lane of that name; where the name is empty, a new lane for one queue alone.
  /// `queue` names the thread of a lane that is made.
  /// Errors: out_of_memory: the system has no thread left.
  [[nodiscard]] Result<std::shared_ptr<Lane>> get(const std::string& name, std::string_view queue);

 private:
  Duration spin_;
  std::mutex mutex_;  ///< guards lanes_
  std::map<std::string, std::shared_ptr<Lane>> lanes_;
};

}  // namespace terrace::offload
