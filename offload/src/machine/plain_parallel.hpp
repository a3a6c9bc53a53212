// A pool of plain threads that take numbered parts from one counter.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "terrace/offload/parallel.hpp"
#include "terrace/offload/thread.hpp"
#include "terrace/offload/topology.hpp"

namespace terrace::offload {

/// Where workers are kept; without a topology they run anywhere.
struct WorkerPlace {
  std::shared_ptr<const Topology> topology{};
  std::vector<CpuIndex> cpus{};

  /// A refused binding costs speed, not correctness.
  void bind_thread() const {
    if (topology) static_cast<void>(topology->bind_thread(cpus));
  }
};

class PlainParallel final : public Parallel {
 public:
  PlainParallel(const ParallelOptions& options, const WorkerPlace& place);
  ~PlainParallel() override;

  [[nodiscard]] std::size_t concurrency() const noexcept override { return workers_.size() + 1; }
  void for_each(std::size_t count, FunctionRef<void(std::size_t)> part) override;

 private:
  struct Job {
    FunctionRef<void(std::size_t)> part;
    std::size_t count;
    std::atomic<std::size_t> next{0};
    void work() {
      for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) part(i);
    }
  };

  void serve();
  void stop() noexcept;

  std::mutex one_job_;  ///< callers take turns
  std::mutex mutex_;
  std::condition_variable job_is_there_;
  std::condition_variable workers_left_;
  Job* job_ = nullptr;
  std::uint64_t job_number_ = 0;
  std::size_t inside_ = 0;  ///< workers that hold `job_`
  bool stopping_ = false;
  std::vector<Thread> workers_;
};

}  // namespace terrace::offload
