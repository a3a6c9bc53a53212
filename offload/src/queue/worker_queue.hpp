// A queue that hands its work to the thread of a lane, through a lock-free ring of pieces, which
// come back through another. A queue has an order and a failure of its own, whichever other queues
// the lane serves.
//
// A piece that takes little time (Executor::is_brief), and that waits for nothing, is carried out
// by the thread that enqueues it, unless earlier pieces are still with the lane. A queue of such
// pieces never asks for a thread.
//
// A full queue holds its caller up until a piece is done, at most `enqueue_timeout` (not_ready).
// Destruction lets the running piece end and cancels the rest: their tickets, which other threads
// may wait for, report `cancelled`. Waits for other queues are cut short.
#pragma once

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "executed_queue.hpp"
#include "lane.hpp"
#include "named_lanes.hpp"

namespace terrace::offload {

struct WorkerQueueSetup {
  QueueLimits limits{};
  NamedLanes* lanes = nullptr;  ///< outlives the queue
  std::string lane;             ///< empty = one of the queue's own
};

class WorkerQueue final : public ExecutedQueue, private LaneMember {
 public:
  /// Errors: out_of_memory: work has to go to the lane's thread, and the system has none left.
  [[nodiscard]] static Result<std::unique_ptr<Queue>> create(std::unique_ptr<Executor> executor,
                                                             const WorkerQueueSetup& setup);
  ~WorkerQueue() override;

 private:
  /// Gives a queue that stepped back its turn again.
  struct Return;

  WorkerQueue(std::unique_ptr<Executor> executor, const WorkerQueueSetup& setup);

  // The caller's side.
  Result<Ticket> enqueue(FunctionRef<void(Piece&)> make) override;
  /// Whether the caller is to carry out a piece.
  [[nodiscard]] bool is_the_callers(const Piece& piece) const;
  [[nodiscard]] Status join_lane();
  Piece* free_piece();
  void hand_over(Piece* piece);

  // The lane's side.
  bool take_turn(std::size_t most) override;
  /// Returns the next piece; null if the queue is empty: the thread that enqueues the next piece
  /// announces the queue.
  Piece* next_piece();
  /// Has the queue announced when what the piece needs has come about. Returns false where it has.
  [[nodiscard]] bool step_back(Piece& piece);
  void carry_out(Piece& piece);

  NamedLanes& lanes_;
  std::string lane_name_;
  std::shared_ptr<Lane> lane_;
  std::deque<Piece> pieces_;  ///< as many as were with the lane at a time
  boost::lockfree::spsc_queue<Piece*> ready_;
  boost::lockfree::spsc_queue<Piece*> free_;
  Piece* spare_ = nullptr;           ///< the caller's: free, and not in free_
  Piece* head_ = nullptr;            ///< taken out of ready_ and not carried out yet
  std::atomic<bool> active_{false};  ///< has a turn coming: enqueuing need not announce it
  std::shared_ptr<Return> return_;
};

}  // namespace terrace::offload
