#include "lease_keeper.hpp"

#include <algorithm>
#include <vector>

namespace terrace::node {
namespace {

/// A lease is due after half of its time: three tries are left then.
constexpr int looks_in_a_lease = 6;
constexpr Duration least_wait = std::chrono::milliseconds{10};

}  // namespace

LeaseKeeper::~LeaseKeeper() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void LeaseKeeper::keep(const std::shared_ptr<LeasedParts>& parts) {
  {
    const std::lock_guard lock(mutex_);
    kept_.push_back(parts);
    shortest_ = std::min(shortest_, parts->lease_time());
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

void LeaseKeeper::renew() {
  std::vector<std::shared_ptr<LeasedParts>> live;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(kept_, [&](const std::weak_ptr<LeasedParts>& each) {
      std::shared_ptr<LeasedParts> parts = each.lock();
      const bool is_over = parts == nullptr || !parts->is_live();
      if (parts != nullptr) live.push_back(std::move(parts));
      return is_over;
    });
  }
  for (const auto& parts : live) parts->renew_if_due();
}

void LeaseKeeper::run() {
  std::unique_lock lock(mutex_);
  while (!ends_) {
    if (kept_.empty()) {
      changed_.wait(lock, [&] { return ends_ || !kept_.empty(); });
      continue;
    }
    // Longer waits would not fit into a point of time.
    const Duration wait =
        std::clamp<Duration>(shortest_ / looks_in_a_lease, least_wait, std::chrono::hours{1});
    const Duration shortest = shortest_;
    changed_.wait_for(lock, wait, [&] { return ends_ || shortest_ < shortest; });
    if (ends_) return;
    if (shortest_ < shortest) continue;
    lock.unlock();
    renew();
    lock.lock();
  }
}

}  // namespace terrace::node
