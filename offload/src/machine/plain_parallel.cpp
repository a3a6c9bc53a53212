#include "plain_parallel.hpp"

#include <utility>

namespace terrace::offload {

PlainParallel::PlainParallel(const ParallelOptions& options, const WorkerPlace& place) {
  workers_.reserve(options.threads - 1);
  const std::string name = options.name.substr(0, 15);  // the system's limit
  try {
    for (std::size_t i = 1; i < options.threads; ++i) {
      workers_.emplace_back([this, place] {
        place.bind_thread();
        serve();
      });
      workers_.back().set_name(name.c_str());
    }
  } catch (...) {
    stop();
    throw;
  }
}

PlainParallel::~PlainParallel() { stop(); }

void PlainParallel::stop() noexcept {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  job_is_there_.notify_all();
  for (Thread& worker : workers_) worker.join();
  workers_.clear();
}

void PlainParallel::serve() {
  std::unique_lock lock(mutex_);
  std::uint64_t seen = 0;
  while (true) {
    job_is_there_.wait(lock, [&] { return stopping_ || (job_ != nullptr && job_number_ != seen); });
    if (stopping_) return;
    seen = job_number_;
    Job* const job = job_;
    ++inside_;
    lock.unlock();
    job->work();
    lock.lock();
    if (--inside_ == 0) workers_left_.notify_all();
  }
}

void PlainParallel::for_each(std::size_t count, FunctionRef<void(std::size_t)> part) {
  if (count < 2) {
    if (count == 1) part(0);
    return;
  }
  const std::scoped_lock turn(one_job_);
  Job job{.part = part, .count = count};
  {
    const std::scoped_lock lock(mutex_);
    job_ = &job;
    ++job_number_;
  }
  job_is_there_.notify_all();
  job.work();
  std::unique_lock lock(mutex_);
  job_ = nullptr;  // no worker enters from here on
  workers_left_.wait(lock, [&] { return inside_ == 0; });
}

}  // namespace terrace::offload
