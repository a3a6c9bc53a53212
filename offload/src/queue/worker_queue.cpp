#include "worker_queue.hpp"

#include <algorithm>
#include <utility>

#include "terrace/core/assert.hpp"

namespace terrace::offload {

struct WorkerQueue::Return final : ProgressListener {
  explicit Return(WorkerQueue& of) : queue(of) {}

  void on_reached() override {
    const std::scoped_lock lock(mutex);
    if (std::exchange(due, false)) queue.lane_->announce(queue);
  }

  std::mutex mutex;    ///< guards due
  bool due = false;    ///< the queue has stepped back, and is there
  WorkerQueue& queue;  ///< not to be looked at unless `due`
};

Result<std::unique_ptr<Queue>> WorkerQueue::create(std::unique_ptr<Executor> executor,
                                                   const WorkerQueueSetup& setup) {
  std::unique_ptr<WorkerQueue> queue(new WorkerQueue(std::move(executor), setup));
  // Where all work goes to the lane, that there is no thread for it is to be known from the start.
  if (!queue->executor().is_brief(Piece::Kind::copy)) TERRACE_TRY(queue->join_lane());
  return queue;
}

// The lane may have done a piece, and not yet given it back: one more than are not done.
WorkerQueue::WorkerQueue(std::unique_ptr<Executor> executor, const WorkerQueueSetup& setup)
    : ExecutedQueue(std::move(executor), setup.limits),
      lanes_(*setup.lanes),
      lane_name_(setup.lane),
      ready_(setup.limits.capacity + 1),
      free_(setup.limits.capacity + 1),
      return_(std::make_shared<Return>(*this)) {}

WorkerQueue::~WorkerQueue() {
  executor().stop();
  if (lane_ == nullptr) return;
  return_->on_reached();
  lane_->leave(*this);
}

Status WorkerQueue::join_lane() {
  if (lane_ != nullptr) return {};
  TERRACE_ASSIGN(lane_, lanes_.get(lane_name_, name()));
  return {};
}

Piece* WorkerQueue::free_piece() {
  if (spare_ != nullptr) return std::exchange(spare_, nullptr);
  Piece* piece = nullptr;
  if (free_.pop(piece)) return piece;
  TERRACE_ASSERT(pieces_.size() <= limits().capacity);
  return &pieces_.emplace_back();
}

bool WorkerQueue::is_the_callers(const Piece& piece) const {
  return executor().is_brief(piece.kind) &&
         progress().has_reached(piece.number - 1, Milestone::told) &&
         (executor().need(piece).is_met() || progress().failed());
}

Result<Ticket> WorkerQueue::enqueue(FunctionRef<void(Piece&)> make) {
  TERRACE_TRY(make_room());
  spare_ = free_piece();
  make(*spare_);
  spare_->number = progress().issued() + 1;
  spare_->enqueued_at = executor().setup().clock->now();
  const Ticket ticket{this, spare_->number};
  if (is_the_callers(*spare_)) {
    progress().issue();
    executor().carry_out(*spare_);
    return ticket;
  }
  if (const Status joined = join_lane(); !joined) {
    spare_->reset();
    return tl::unexpected(joined.error());
  }
  progress().issue();
  hand_over(std::exchange(spare_, nullptr));
  return ticket;
}

void WorkerQueue::hand_over(Piece* piece) {
  const bool pushed = ready_.push(piece);
  TERRACE_ASSERT(pushed);
  // By exchange, here and in next_piece(): the second thread sees the earlier writes of the first.
  if (!active_.exchange(true, std::memory_order_acq_rel)) lane_->announce(*this);
}

Piece* WorkerQueue::next_piece() {
  Piece* piece = nullptr;
  if (ready_.pop(piece)) return piece;
  active_.exchange(false, std::memory_order_acq_rel);
  if (ready_.read_available() == 0) return nullptr;
  // A caller that enqueued it in between has announced the queue, or leaves the piece to this turn.
  if (active_.exchange(true, std::memory_order_acq_rel)) return nullptr;
  ready_.pop(piece);
  return piece;
}

bool WorkerQueue::take_turn(std::size_t most) {
  for (std::size_t taken = 0; taken < most; ++taken) {
    if (head_ == nullptr) head_ = next_piece();
    if (head_ == nullptr) return false;
    if (!progress().failed() && step_back(*head_)) return false;
    carry_out(*std::exchange(head_, nullptr));
  }
  return true;
}

bool WorkerQueue::step_back(Piece& piece) {
  const Executor::Need need = executor().need(piece);
  if (need.is_met()) return false;
  const std::scoped_lock lock(return_->mutex);
  if (executor().stopping()) return false;
  if (piece.began_waiting == TimePoint{}) piece.began_waiting = executor().setup().clock->now();
  return_->due = need.progress->listen(need.number, need.milestone, return_);
  return return_->due;
}

void WorkerQueue::carry_out(Piece& piece) {
  const bool waited = piece.kind == Piece::Kind::wait_for && piece.began_waiting != TimePoint{};
  if (waited && ready_.read_available() != 0) {
    // Standing still costs only from when there is work to hold up.
    const TimePoint held_from = std::max(piece.began_waiting, ready_.front()->enqueued_at);
    const Duration held = executor().setup().clock->now() - held_from;
    executor().counters().add_wait(std::max(Duration{}, held));
  }
  executor().carry_out(piece);
  free_.push(&piece);
}

}  // namespace terrace::offload
