#include "worker_queue.hpp"

#include <algorithm>
#include <utility>

#include "spin.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::offload {

struct WorkerQueue::Return final : ProgressListener {
  explicit Return(WorkerQueue& of) : queue(of) {}

  void on_done() override {
    const std::scoped_lock lock(mutex);
    if (std::exchange(due, false)) queue.setup_.lane->announce(queue);
  }

  std::mutex mutex;    ///< guards due
  bool due = false;    ///< the queue has stepped back, and is there
  WorkerQueue& queue;  ///< not to be looked at unless `due`
};

WorkerQueue::WorkerQueue(WorkerQueueSetup setup, std::shared_ptr<Progress> progress)
    : setup_(std::move(setup)),
      progress_(std::move(progress)),
      ready_(setup_.capacity),
      free_(setup_.capacity),
      return_(std::make_shared<Return>(*this)) {
  if (setup_.fixed_slots) pieces_.resize(setup_.capacity);
  for (Piece& piece : pieces_) free_.push(&piece);
}

WorkerQueue::~WorkerQueue() { TERRACE_ASSERT(setup_.lane == nullptr); }

Status WorkerQueue::start() {
  if (setup_.lane != nullptr) return {};
  TERRACE_ASSIGN(setup_.lane, Lane::create(setup_.name, setup_.spin));
  return {};
}

void WorkerQueue::stop() noexcept {
  if (setup_.lane == nullptr) return;
  std::shared_ptr<Progress> awaiting;
  {
    const std::scoped_lock lock(stop_mutex_);
    stopping_.store(true, std::memory_order_release);
    awaiting = awaiting_;
  }
  stopped_.notify_all();
  if (awaiting != nullptr) awaiting->wake();
  return_->on_done();
  setup_.lane->leave(*this);
  setup_.lane.reset();
}

Result<Piece*> WorkerQueue::free_piece() {
  Piece* piece = nullptr;
  if (free_.pop(piece)) return piece;
  if (pieces_.size() < setup_.capacity) return &pieces_.emplace_back();
  const std::uint64_t oldest = progress_->issued() - setup_.capacity + 1;
  progress_->wait_done(oldest, deadline_after(setup_.enqueue_timeout), setup_.spin);
  if (free_.pop(piece)) return piece;
  return fail(Errc::not_ready, "queue {} is full: {} pieces of work are enqueued", name(),
              setup_.capacity);
}

Ticket WorkerQueue::hand_over(Piece* piece) {
  piece->number = progress_->issue();
  piece->enqueued_at = setup_.clock->now();
  const std::uint64_t number = piece->number;  // the piece belongs to the lane once it is pushed
  const bool pushed = ready_.push(piece);
  TERRACE_ASSERT(pushed);
  // By exchange, here and in next_piece(): who comes second sees what the other did before.
  if (!active_.exchange(true, std::memory_order_acq_rel)) setup_.lane->announce(*this);
  return {this, number};
}

Result<Ticket> WorkerQueue::enqueue(FunctionRef<void(Piece&)> make) {
  TERRACE_ASSIGN(Piece* const piece, free_piece());
  make(*piece);
  return hand_over(piece);
}

Result<Ticket> WorkerQueue::do_copy(Phase phase, std::span<const CopyExtent> extents) {
  return enqueue([&](Piece& piece) { piece.make_copy(phase, extents); });
}

Result<Ticket> WorkerQueue::do_call(Phase phase, Task task) {
  return enqueue([&](Piece& piece) { piece.make_call(phase, std::move(task)); });
}

Status WorkerQueue::do_wait_for(Ticket ticket) {
  const auto* const other = dynamic_cast<WorkerQueue*>(ticket.queue);
  if (other == nullptr) {
    return fail(Errc::invalid_argument, "queue {}: the ticket of {} is another backend's", name(),
                ticket.queue->name());
  }
  TERRACE_TRY(check_ticket(*other->progress_, ticket.number));
  // What is done holds nothing up; what failed has to fail what comes behind it, in its turn.
  const Progress& awaited = *other->progress_;
  if (awaited.is_done(ticket.number) && awaited.outcome(ticket.number)) return {};
  return enqueue([&](Piece& piece) { piece.make_wait(other->progress_, ticket.number); })
      .map([](Ticket) {});
}

Status WorkerQueue::do_wait(Ticket ticket, Duration timeout) {
  if (progress_->is_done(ticket.number)) return progress_->outcome(ticket.number);
  return progress_->wait(ticket.number, deadline_after(timeout), setup_.spin);
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
    if (!progress_->failed() && steps_back(*head_) && step_back(*head_)) return false;
    work(*std::exchange(head_, nullptr));
  }
  return true;
}

bool WorkerQueue::step_back(Piece& piece) {
  const std::scoped_lock lock(return_->mutex);
  if (stopping()) return false;
  if (piece.began_waiting == TimePoint{}) piece.began_waiting = setup_.clock->now();
  return_->due = piece.awaited->listen(piece.awaited_number, return_);
  return return_->due;
}

void WorkerQueue::retire(Piece& piece) {
  const std::uint64_t number = piece.number;
  piece.reset();
  free_.push(&piece);
  progress_->complete(number);
}

bool WorkerQueue::is_skipped(const Piece& piece) {
  if (progress_->failed()) return true;
  if (!stopping()) return false;
  progress_->fail(piece.number, cancelled());
  return true;
}

Error WorkerQueue::cancelled() const {
  return make_error(Errc::cancelled, "queue {} was destroyed before this was run", name());
}

bool WorkerQueue::wait_interruptibly(const std::shared_ptr<Progress>& other,
                                     FunctionRef<bool(const std::atomic<bool>&)> wait) {
  {
    const std::scoped_lock lock(stop_mutex_);
    awaiting_ = other;
  }
  const bool reached = wait(stopping_);
  const std::scoped_lock lock(stop_mutex_);
  awaiting_.reset();
  return reached;
}

Status WorkerQueue::await(const Piece& piece) {
  const TimePoint began =
      piece.began_waiting == TimePoint{} ? setup_.clock->now() : piece.began_waiting;
  const bool done = wait_interruptibly(piece.awaited, [&](const std::atomic<bool>& stopping) {
    return piece.awaited->wait_done(piece.awaited_number, TimePoint::max(), setup_.spin, &stopping);
  });
  if (!done) return tl::unexpected(cancelled());
  if (ready_.read_available() != 0) {
    // Standing still costs only from when there is work to hold up.
    const TimePoint held_from = std::max(began, ready_.front()->enqueued_at);
    counters_.add_wait(std::max(Duration{}, setup_.clock->now() - held_from));
  }
  TERRACE_TRY(piece.awaited->poll(piece.awaited_number));
  return {};
}

void WorkerQueue::count(const Piece& piece, TimePoint begin, TimePoint end, std::size_t bytes) {
  counters_.add(piece.phase, end - begin, bytes);
  if (setup_.observer != nullptr) {
    setup_.observer->on_work({setup_.name, piece.phase, begin, end, bytes});
  }
}

void WorkerQueue::pause_until(TimePoint time) {
  // A sleeper wakes tens of microseconds late, and a link would seem slower by that.
  constexpr Duration wake_up = std::chrono::microseconds{100};
  const auto stopping = [&] { return stopping_.load(std::memory_order_relaxed); };
  {
    std::unique_lock lock(stop_mutex_);
    if (stopped_.wait_until(lock, time - wake_up, stopping)) return;
  }
  spin_until(stopping, time);
}

}  // namespace terrace::offload
