#include "workers.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace terrace::node {

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (offload::Thread& thread : threads_) thread.join();
}

Status Workers::open(std::uint32_t threads) {
  ended_ = Descriptor(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!ended_.is_open()) return fail(Errc::out_of_memory, "no descriptor is left: raise nofile");
  running_max_ = std::max(1U, threads / 2);
  try {
    for (std::uint32_t i = 0; i < std::max(1U, threads); ++i) {
      threads_.emplace_back([this] { work(); });
      threads_.back().set_name("terrace-node");
    }
  } catch (const std::system_error& error) {
    return fail(Errc::out_of_memory, "daemon.threads: the system gives no thread: {}",
                error.what());
  }
  return {};
}

void Workers::start(std::uint64_t client, Job job) {
  {
    const std::lock_guard lock(mutex_);
    lanes_[client].jobs.push_back(std::move(job));
  }
  ++under_way_;
  wake_.notify_one();
}

std::map<std::uint64_t, Workers::Lane>::iterator Workers::next_lane() {
  const auto may_go_on = [&](const auto& lane) {
    return !lane.second.jobs.empty() && lane.second.running < running_max_;
  };
  const auto after = lanes_.upper_bound(last_);
  const auto found = std::find_if(after, lanes_.end(), may_go_on);
  if (found != lanes_.end()) return found;
  const auto first = std::find_if(lanes_.begin(), after, may_go_on);
  return first == after ? lanes_.end() : first;
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    auto lane = lanes_.end();
    wake_.wait(lock, [&] { return stopping_ || (lane = next_lane()) != lanes_.end(); });
    if (stopping_) return;
    const std::uint64_t client = last_ = lane->first;
    Job job = std::move(lane->second.jobs.front());
    lane->second.jobs.pop_front();
    ++lane->second.running;
    lock.unlock();
    Ending ending = job();
    job = nullptr;
    lock.lock();
    endings_.push_back(std::move(ending));
    const auto own = lanes_.find(client);
    if (--own->second.running == 0 && own->second.jobs.empty()) lanes_.erase(own);
    static_cast<void>(::eventfd_write(ended_.get(), 1));
    // This thread may go on with the lane that it held back.
  }
}

void Workers::run_endings() {
  eventfd_t count = 0;
  static_cast<void>(::eventfd_read(ended_.get(), &count));
  std::vector<Ending> endings;
  {
    const std::lock_guard lock(mutex_);
    endings = std::exchange(endings_, {});
  }
  for (const Ending& ending : endings) {
    if (ending) ending();
  }
  under_way_ -= endings.size();
}

}  // namespace terrace::node
