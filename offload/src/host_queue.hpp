// A queue whose work is carried out by its thread: copies, host functions, and the wait that an
// imitated link imposes.
#pragma once

#include <memory>

#include "terrace/offload/link.hpp"
#include "worker_queue.hpp"

namespace terrace::offload {

class HostQueue final : public WorkerQueue {
 public:
  /// Without a link (null) transfers take the time they take.
  /// Errors: out_of_memory when the system has no thread left.
  [[nodiscard]] static Result<std::unique_ptr<Queue>> create(const WorkerQueueSetup& setup,
                                                             Link* link);
  ~HostQueue() override { stop(); }

 private:
  HostQueue(const WorkerQueueSetup& setup, Link* link);

  void work(Piece& piece) override;
  [[nodiscard]] bool steps_back(const Piece& piece) const override;
  Status perform(Piece& piece);
  void pay_for(Phase phase, TimePoint began, std::size_t bytes);

  Link* link_;
};

}  // namespace terrace::offload
