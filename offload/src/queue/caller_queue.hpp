// A queue without a thread: a piece is carried out on the thread that enqueues it, at once. That
// thread waits for the work that the piece has to come after.
#pragma once

#include "executed_queue.hpp"

namespace terrace::offload {

class CallerQueue final : public ExecutedQueue {
 public:
  CallerQueue(std::unique_ptr<Executor> executor, const QueueLimits& limits)
      : ExecutedQueue(std::move(executor), limits) {}
  ~CallerQueue() override { executor().stop(); }

 private:
  Result<Ticket> enqueue(FunctionRef<void(Piece&)> make) override;
  /// Errors: not_ready.
  Status await(const Piece& piece);

  Piece piece_;
};

}  // namespace terrace::offload
