// A queue that hands its work to the thread of a lane, through a lock-free ring of pieces, which
// come back through another. The subclass says what the thread does with a piece. A queue has an
// order and a failure of its own, whichever other queues the lane serves.
//
// A full queue holds its caller up until a piece is free, at most `enqueue_timeout` (not_ready).
// Destruction lets the running piece end and cancels the rest: their tickets, which others may wait
// for, report `cancelled`. Waits for other queues are cut short.
#pragma once

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "lane.hpp"
#include "phase_counters.hpp"
#include "piece.hpp"
#include "terrace/core/function_ref.hpp"

namespace terrace::offload {

struct WorkerQueueSetup {
  std::string name;
  Parallel* threads = nullptr;
  const Clock* clock = nullptr;  ///< of the counters
  std::size_t capacity = 1024;   ///< pieces enqueued and not done
  bool fixed_slots = false;      ///< piece_of() is asked: all pieces are there from the start
  std::shared_ptr<Lane> lane{};  ///< null = one of its own
  Duration spin{};
  Duration enqueue_timeout{};
  WorkObserver* observer = nullptr;  ///< sees each piece that ran; null for nobody
};

class WorkerQueue : public Queue, private LaneMember {
 public:
  [[nodiscard]] std::string_view name() const noexcept override { return setup_.name; }
  [[nodiscard]] Parallel& threads() noexcept override { return *setup_.threads; }
  [[nodiscard]] Status clear_error() override { return progress_->clear_error(); }
  [[nodiscard]] QueueCounters counters() const override { return counters_.read(); }

 protected:
  WorkerQueue(WorkerQueueSetup setup, std::shared_ptr<Progress> progress);
  ~WorkerQueue() override;

  /// Errors: out_of_memory when the system has no thread left.
  [[nodiscard]] Status start();

  /// Leaves the lane, as destruction says. Subclasses call it first thing in their destructors.
  void stop() noexcept;

  /// Carries a piece out, or not (is_skipped), and retires it: now, or later in the same order.
  virtual void work(Piece& piece) = 0;

  /// Whether a piece waits for another queue's, which is not done: the queue then has no turn until
  /// it is. A piece for which this is false waits in work().
  [[nodiscard]] virtual bool steps_back(const Piece& piece) const = 0;

  /// Publishes that a piece is done, and frees it. From one thread.
  void retire(Piece& piece);

  /// Whether a piece is not to be carried out: the queue has failed, or is being destroyed.
  [[nodiscard]] bool is_skipped(const Piece& piece);

  /// Returns the piece of a number; its slot is that of no other piece before it is retired.
  [[nodiscard]] Piece& piece_of(std::uint64_t number) noexcept {
    return pieces_[(number - 1) % setup_.capacity];
  }

  /// Waits until all that a piece waits for is done. Errors: the awaited work's; cancelled.
  [[nodiscard]] Status await(const Piece& piece);

  /// Counts a piece that ran, and shows it to the observer.
  void count(const Piece& piece, TimePoint begin, TimePoint end, std::size_t bytes);

  /// Sleeps until a time; less when the queue ends.
  void pause_until(TimePoint time);

  /// Calls wait(flag) after arranging that `other` wakes up when the queue ends and sets the flag.
  bool wait_interruptibly(const std::shared_ptr<Progress>& other,
                          FunctionRef<bool(const std::atomic<bool>&)> wait);

  [[nodiscard]] Error cancelled() const;
  [[nodiscard]] const WorkerQueueSetup& setup() const noexcept { return setup_; }
  [[nodiscard]] Progress& progress() noexcept { return *progress_; }
  [[nodiscard]] PhaseCounters& phase_counters() noexcept { return counters_; }
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(std::memory_order_acquire); }

  /// Enqueues a piece that `make` has filled in.
  Result<Ticket> enqueue(FunctionRef<void(Piece&)> make);

 private:
  Result<Ticket> do_copy(Phase phase, std::span<const CopyExtent> extents) override;
  Result<Ticket> do_call(Phase phase, Task task) override;
  Result<Ticket> do_record() override { return Ticket{this, progress_->issued()}; }
  Status do_wait_for(Ticket ticket) override;
  Result<bool> do_poll(Ticket ticket) override { return progress_->poll(ticket.number); }
  Status do_wait(Ticket ticket, Duration timeout) override;

  /// Gives a queue that stepped back its turn again.
  struct Return;

  // The caller's side.
  Result<Piece*> free_piece();
  Ticket hand_over(Piece* piece);

  // The lane's side.
  bool take_turn(std::size_t most) override;
  /// Returns the next piece; null where there is none, and who enqueues one announces the queue.
  Piece* next_piece();
  /// Has the queue announced when what the piece waits for is done. Returns false where it is.
  [[nodiscard]] bool step_back(Piece& piece);

  WorkerQueueSetup setup_;
  std::shared_ptr<Progress> progress_;
  PhaseCounters counters_;
  std::deque<Piece> pieces_;  ///< as many as were enqueued at a time
  boost::lockfree::spsc_queue<Piece*> ready_;
  boost::lockfree::spsc_queue<Piece*> free_;
  Piece* head_ = nullptr;            ///< taken out of ready_ and not carried out yet
  std::atomic<bool> active_{false};  ///< has a turn coming: who enqueues need not announce it
  std::shared_ptr<Return> return_;
  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;  ///< guards awaiting_; stopping_ is set under it
  std::condition_variable stopped_;
  std::shared_ptr<Progress> awaiting_;  ///< whom the lane's thread waits for in work()
};

}  // namespace terrace::offload
