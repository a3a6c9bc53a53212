// A queue whose pieces an Executor carries out: what is the same whichever thread does it.
#pragma once

#include <memory>

#include "executor.hpp"
#include "terrace/core/function_ref.hpp"

namespace terrace::offload {

struct QueueLimits {
  std::size_t capacity = 1024;  ///< pieces enqueued and not done
  Duration spin{};              ///< before a thread sleeps
  Duration enqueue_timeout{};   ///< how long enqueueing may hold its caller up (not_ready)
};

class ExecutedQueue : public Queue {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return executor_->setup().name; }
  [[nodiscard]] Parallel& threads() noexcept override { return *executor_->setup().threads; }
  [[nodiscard]] Status clear_error() override { return progress().clear_error(); }
  [[nodiscard]] QueueCounters counters() const override { return executor_->counters().read(); }

 protected:
  ExecutedQueue(std::unique_ptr<Executor> executor, const QueueLimits& limits)
      : executor_(std::move(executor)), limits_(limits) {}

  [[nodiscard]] Executor& executor() const noexcept { return *executor_; }
  [[nodiscard]] Progress& progress() const noexcept { return *executor_->progress(); }
  [[nodiscard]] const QueueLimits& limits() const noexcept { return limits_; }

  /// Waits until a piece more may be enqueued. Errors: not_ready.
  [[nodiscard]] Status make_room();

  /// Waits until a piece of this queue is done. The thread looks by itself while it spins, and
  /// sleeps then. Returns whether it is done.
  bool await_done(std::uint64_t number, TimePoint deadline);

 private:
  /// Enqueues a piece that `make` fills in.
  virtual Result<Ticket> enqueue(FunctionRef<void(Piece&)> make) = 0;

  Result<Ticket> do_copy(Phase phase, std::span<const CopyExtent> extents) override;
  Result<Ticket> do_call(Phase phase, Task task) override;
  Result<Ticket> do_launch(Phase phase, Task task) override;
  Result<Ticket> do_record() override;
  Status do_wait_for(Ticket ticket) override;
  Status do_wait_for_event(const Event& event) override;
  Result<bool> do_poll(Ticket ticket) override;
  Status do_wait(Ticket ticket, Duration timeout) override;

  std::unique_ptr<Executor> executor_;
  QueueLimits limits_;
};

}  // namespace terrace::offload
