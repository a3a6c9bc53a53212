// A queue without a thread: it keeps its work, and a Stepper decides whose front piece runs next.
// One thread only.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "phase_counters.hpp"
#include "piece.hpp"

namespace terrace::offload {

class SteppedQueue;

class Stepper {
 public:
  virtual ~Stepper() = default;

  /// Runs work until piece `number` of `queue` is done.
  /// Errors: not_ready at the deadline, or when every queue is blocked.
  virtual Status run_until(SteppedQueue& queue, std::uint64_t number, Duration timeout) = 0;

  /// Runs some work, if there is any that can run: polling must come to an end.
  virtual void run_some() = 0;

  void add(SteppedQueue& queue) { queues_.push_back(&queue); }
  void remove(SteppedQueue& queue) { std::erase(queues_, &queue); }

 protected:
  /// The error of a wait that no work can end.
  [[nodiscard]] Status deadlock(const SteppedQueue& queue, std::uint64_t number) const;

  std::vector<SteppedQueue*> queues_;
};

struct SteppedQueueSetup {
  std::string name;
  Stepper* stepper = nullptr;
  Parallel* threads = nullptr;
  const Clock* clock = nullptr;
};

class SteppedQueue final : public Queue {
 public:
  /// A piece that has begun, and how it went.
  struct Running {
    Piece::Kind kind;
    Phase phase;
    std::uint64_t number;
    std::size_t bytes = 0;
    Status status{};
    bool skipped = false;
    TimePoint began{};
  };

  explicit SteppedQueue(SteppedQueueSetup setup);
  ~SteppedQueue() override;

  [[nodiscard]] std::string_view name() const noexcept override { return setup_.name; }
  [[nodiscard]] Parallel& threads() noexcept override { return *setup_.threads; }
  [[nodiscard]] Status clear_error() override { return progress_->clear_error(); }
  [[nodiscard]] QueueCounters counters() const override { return counters_.read(); }

  // For steppers.
  [[nodiscard]] bool is_done(std::uint64_t number) const { return progress_->is_done(number); }
  [[nodiscard]] Status outcome(std::uint64_t number) const;
  [[nodiscard]] bool has_work() const noexcept { return !pending_.empty() || running_.has_value(); }
  [[nodiscard]] bool can_begin() const;
  [[nodiscard]] const Piece& front() const { return pending_.front(); }
  [[nodiscard]] Running* running() noexcept { return running_ ? &*running_ : nullptr; }
  [[nodiscard]] bool failed() const noexcept { return progress_->failed(); }

  /// Takes the front piece and carries it out.
  Running& begin();
  /// Publishes that the piece begun is done.
  void end();

 private:
  Result<Ticket> do_copy(Phase phase, std::span<const CopyExtent> extents) override;
  Result<Ticket> do_call(Phase phase, Task task) override;
  Result<Ticket> do_record() override { return Ticket{this, progress_->last()}; }
  Status do_wait_for(Ticket ticket) override;
  Result<bool> do_poll(Ticket ticket) override;
  Status do_wait(Ticket ticket, Duration timeout) override;

  Piece& new_piece();
  void perform(Piece& piece, Running& running);

  SteppedQueueSetup setup_;
  std::shared_ptr<Progress> progress_;
  PhaseCounters counters_;
  std::deque<Piece> pending_;
  std::optional<Running> running_;
  bool inside_ = false;  ///< begin() is on the stack: a task of ours waits for something
  TimePoint last_end_{};
};

}  // namespace terrace::offload
