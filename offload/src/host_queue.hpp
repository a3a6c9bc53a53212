// A queue that is a thread: work is handed over through a lock-free ring of preallocated pieces,
// which come back through another.
//
// A full queue holds its caller up until a piece is free, at most `enqueue_timeout` (not_ready).
// Destruction lets the running piece end and cancels the rest: their tickets, which others may wait
// for, report `cancelled`. Waits for other queues and for an imitated link are cut short.
#pragma once

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "phase_counters.hpp"
#include "piece.hpp"
#include "terrace/offload/link.hpp"

namespace terrace::offload {

struct HostQueueSetup {
  std::string name;
  Parallel* threads = nullptr;
  const Clock* clock = nullptr;  ///< of the counters
  Link* link = nullptr;          ///< null: transfers take the time they take
  std::size_t capacity = 1024;   ///< pieces enqueued and not done
  Duration spin{};
  Duration enqueue_timeout{};
  WorkObserver* observer = nullptr;  ///< sees each piece that ran; null for nobody
};

class HostQueue final : public Queue {
 public:
  /// Errors: out_of_memory when the system has no thread left.
  [[nodiscard]] static Result<std::unique_ptr<Queue>> create(HostQueueSetup setup);
  ~HostQueue() override;

  [[nodiscard]] std::string_view name() const noexcept override { return setup_.name; }
  [[nodiscard]] Parallel& threads() noexcept override { return *setup_.threads; }
  [[nodiscard]] Status clear_error() override { return progress_->clear_error(); }
  [[nodiscard]] QueueCounters counters() const override { return counters_.read(); }

 private:
  explicit HostQueue(HostQueueSetup setup);

  Result<Ticket> do_copy(Phase phase, std::span<const CopyExtent> extents) override;
  Result<Ticket> do_call(Phase phase, Task task) override;
  Result<Ticket> do_record() override { return Ticket{this, progress_->issued()}; }
  Status do_wait_for(Ticket ticket) override;
  Result<bool> do_poll(Ticket ticket) override { return progress_->poll(ticket.number); }
  Status do_wait(Ticket ticket, Duration timeout) override;

  // The caller's side.
  Result<Piece*> free_piece();
  Ticket hand_over(Piece* piece);

  // The worker's side.
  void serve();
  Piece* next_piece();
  void carry_out(Piece& piece);
  Status perform(Piece& piece);
  [[nodiscard]] Error cancelled() const;
  Status await(const Piece& piece);
  void pay_for(Phase phase, TimePoint began, std::size_t bytes);

  HostQueueSetup setup_;
  std::shared_ptr<Progress> progress_;
  PhaseCounters counters_;
  std::vector<Piece> pieces_;
  boost::lockfree::spsc_queue<Piece*> ready_;
  boost::lockfree::spsc_queue<Piece*> free_;
  std::atomic<std::uint32_t> bell_{0};  ///< counts what the worker should look at
  std::atomic<bool> stopping_{false};
  std::mutex stop_mutex_;  ///< guards awaiting_; stopping_ is set under it
  std::condition_variable link_wait_ends_;
  std::shared_ptr<Progress> awaiting_;  ///< whom the worker waits for
  std::thread worker_;
};

}  // namespace terrace::offload
