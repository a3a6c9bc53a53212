#include "handle.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <vector>

namespace terrace::python {
namespace {

std::atomic<unsigned> fork_count{0};
/// Forks when the first runtime was opened, or -1.
std::atomic<int> forks_at_start{-1};

struct Remembered {
  std::mutex mutex;
  std::vector<std::weak_ptr<OpenHandle>> handles;
  std::size_t swept_size = 0;  ///< how many were alive when the dead were last dropped
  bool ended = false;          ///< close_handles() was called
};

/// Never destroyed: handles may outlive the module.
Remembered& remembered() {
  static auto* const all = new Remembered;
  return *all;
}

}  // namespace

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { fork_count.fetch_add(1, std::memory_order_relaxed); });
}

unsigned forks() noexcept { return fork_count.load(std::memory_order_relaxed); }

void check_may_start_threads() {
  const int now = static_cast<int>(forks());
  int started = -1;
  if (forks_at_start.compare_exchange_strong(started, now) || started == now) return;
  raise_invalid(
      "this process was forked from one that had opened a runtime, and has none of its threads: "
      "start the process by the method spawn");
}

void remember(const std::shared_ptr<OpenHandle>& handle) {
  Remembered& all = remembered();
  const std::lock_guard lock(all.mutex);
  if (all.ended) return handle->close();
  if (all.handles.size() > 2 * all.swept_size + 16) {
    std::erase_if(all.handles, [](const auto& weak) { return weak.expired(); });
    all.swept_size = all.handles.size();
  }
  all.handles.push_back(handle);
}

void close_handles() noexcept {
  Remembered& all = remembered();
  std::vector<std::weak_ptr<OpenHandle>> handles;
  {
    const std::lock_guard lock(all.mutex);
    handles.swap(all.handles);
    all.ended = true;
  }
  for (const auto& weak : handles) {
    if (const auto handle = weak.lock()) handle->close();
  }
}

}  // namespace terrace::python
