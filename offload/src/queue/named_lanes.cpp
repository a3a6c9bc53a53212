#include "named_lanes.hpp"

namespace terrace::offload {

Result<std::shared_ptr<Lane>> NamedLanes::get(const std::string& name, std::string_view queue) {
  if (name.empty()) return Lane::create(std::string(queue), spin_);
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<Lane>& found = lanes_[name];
  if (found == nullptr) {
    TERRACE_ASSIGN(found, Lane::create(name, spin_));
  }
  return found;
}

}  // namespace terrace::offload
