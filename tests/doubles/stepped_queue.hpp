// Queues without a thread: they keep their work, and a stepper draws the queue that runs its next
// piece. One thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "doubles/seeded_scheduler.hpp"
#include "queue/event_progress.hpp"
#include "queue/phase_counters.hpp"
#include "queue/piece.hpp"
#include "queue/progress.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::doubles {

class SteppedQueue;

class Stepper {
 public:
  explicit Stepper(std::uint64_t seed) : rng_(seed) {}

  /// Runs one piece. Returns whether there was one that could run.
  bool step();

  /// Runs work until piece `number` of `queue` is done.
  /// Errors: not_ready at the deadline, or when every queue is blocked; the piece's own.
  Status run_until(SteppedQueue& queue, std::uint64_t number, Duration timeout);

  void add(SteppedQueue& queue) { queues_.push_back(&queue); }
  void remove(SteppedQueue& queue) { std::erase(queues_, &queue); }

  void observe(PieceObserver* observer) noexcept { observer_ = observer; }
  [[nodiscard]] std::size_t steps() const noexcept { return steps_; }

 private:
  void run_front(SteppedQueue& queue);
  /// The error of a wait that no work can end.
  [[nodiscard]] Status deadlock(const SteppedQueue& queue, std::uint64_t number) const;

  Rng rng_;
  std::size_t steps_ = 0;
  PieceObserver* observer_ = nullptr;
  std::vector<SteppedQueue*> queues_;
  std::vector<SteppedQueue*> able_;  // kept for its capacity
};

class SteppedQueue final : public Queue {
 public:
  /// `stepper`, `threads` and `clock` must outlive the queue.
  SteppedQueue(std::string name, Stepper& stepper, Parallel& threads, const Clock& clock);
  ~SteppedQueue() override;

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  [[nodiscard]] Parallel& threads() noexcept override { return threads_; }
  [[nodiscard]] Status clear_error() override { return progress_->clear_error(); }
  [[nodiscard]] QueueCounters counters() const override { return counters_.read(); }

  // For the stepper.
  [[nodiscard]] bool is_done(std::uint64_t number) const { return progress_->is_done(number); }
  [[nodiscard]] Status outcome(std::uint64_t number) const;
  [[nodiscard]] bool has_work() const noexcept { return !pending_.empty(); }
  [[nodiscard]] bool can_begin() const;
  [[nodiscard]] const offload::Piece& front() const { return pending_.front(); }
  [[nodiscard]] bool failed() const noexcept { return progress_->failed(); }

  /// Carries the front piece out, or skips it on a queue that has failed, and publishes the end.
  void run_front();

 private:
  Result<Ticket> do_copy(Phase phase, std::span<const CopyExtent> extents) override;
  Result<Ticket> do_call(Phase phase, Task task) override;
  Result<Ticket> do_record() override { return Ticket{this, progress_->last()}; }
  Status do_wait_for(Ticket ticket) override;
  Status do_wait_for_event(const Event& event) override;
  Result<bool> do_poll(Ticket ticket) override;
  Status do_wait(Ticket ticket, Duration timeout) override;

  offload::Piece& new_piece();
  /// Carries out the front piece, which is let go. Returns the bytes that it moved.
  Result<std::size_t> perform(offload::Piece piece, TimePoint began);
  Result<std::size_t> end_wait(const offload::Piece& piece, TimePoint began);

  std::string name_;
  Stepper& stepper_;
  Parallel& threads_;
  const Clock& clock_;
  std::shared_ptr<offload::Progress> progress_;
  offload::PhaseCounters counters_;
  std::deque<offload::Piece> pending_;
  bool inside_ = false;  // run_front() is on the stack: a task of this queue waits for something
  TimePoint last_end_{};
};

}  // namespace terrace::doubles
