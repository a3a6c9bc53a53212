// Threads for what waits: jobs of clients, in turn, and their ends on the thread of the server.
//
//   workers.start(client, [..]() -> Ending { ...wait for the disk...; return [..] { ...reply... };
//   });
//   ...on the server's thread, when descriptor() is readable:
//   workers.run_endings();
//
// Each client has a queue of its own, and free threads go from one to the next: a client with many
// jobs delays others by one job. A client has at most half of the threads at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "sockets/descriptor.hpp"
#include "terrace/core/result.hpp"
#include "terrace/offload/thread.hpp"

namespace terrace::node {

using Ending = std::function<void()>;
using Job = std::function<Ending()>;

/// Threads  the server's alone; jobs run on threads of their own
class Workers {
 public:
  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Waits for jobs that run; those that have not begun are dropped.
  ~Workers();

  /// Errors   out_of_memory: the system has no thread or no descriptor left
  [[nodiscard]] Status open(std::uint32_t threads);

  void start(std::uint64_t client, Job job);

  /// Jobs whose endings have not run.
  [[nodiscard]] std::uint64_t under_way() const noexcept { return under_way_; }
  [[nodiscard]] int descriptor() const noexcept { return ended_.get(); }
  void run_endings();

 private:
  struct Lane {
    std::deque<Job> jobs;
    std::uint32_t running = 0;
  };
  void work();
  /// With the mutex: the client whose turn it is; lanes_.end() where none may go on.
  std::map<std::uint64_t, Lane>::iterator next_lane();

  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::map<std::uint64_t, Lane> lanes_;
  std::uint64_t last_ = 0;  ///< client whose job was begun last
  std::uint32_t running_max_ = 1;
  bool stopping_ = false;
  std::vector<Ending> endings_;
  std::uint64_t under_way_ = 0;
  Descriptor ended_;
  std::vector<offload::Thread> threads_;
};

}  // namespace terrace::node
