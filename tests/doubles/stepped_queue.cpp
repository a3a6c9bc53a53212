#include "doubles/stepped_queue.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace terrace::doubles {

using offload::Piece;

bool Stepper::step() {
  able_.clear();
  for (SteppedQueue* const queue : queues_) {
    if (queue->can_begin()) able_.push_back(queue);
  }
  if (able_.empty()) return false;
  run_front(*able_[rng_.below(able_.size())]);
  ++steps_;
  return true;
}

void Stepper::run_front(SteppedQueue& queue) {
  const Piece& piece = queue.front();
  const PieceView view{
      .queue = queue.name(), .phase = piece.phase, .is_copy = piece.kind == Piece::Kind::copy};
  const bool shown = observer_ != nullptr && piece.kind != Piece::Kind::wait_for && !queue.failed();
  if (shown) observer_->before(view);
  queue.run_front();
  if (shown) observer_->after(view);
}

Status Stepper::run_until(SteppedQueue& queue, std::uint64_t number, Duration timeout) {
  const TimePoint deadline = offload::deadline_after(timeout);
  while (!queue.is_done(number)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(Errc::not_ready, "queue {}: piece {} is not done in time", queue.name(), number);
    }
    if (!step()) return deadlock(queue, number);
  }
  return queue.outcome(number);
}

Status Stepper::deadlock(const SteppedQueue& queue, std::uint64_t number) const {
  const auto blocked = std::ranges::count_if(queues_, [](auto* each) { return each->has_work(); });
  return fail(Errc::not_ready,
              "deadlock: piece {} of queue {} can never be done; {} queues with "
              "work are blocked",
              number, queue.name(), blocked);
}

SteppedQueue::SteppedQueue(std::string name, Stepper& stepper, Parallel& threads,
                           const Clock& clock)
    : name_(std::move(name)),
      stepper_(stepper),
      threads_(threads),
      clock_(clock),
      progress_(std::make_shared<offload::Progress>(name_)) {
  stepper_.add(*this);
}

SteppedQueue::~SteppedQueue() {
  stepper_.remove(*this);
  if (!has_work()) return;
  progress_->fail(pending_.front().number,
                  make_error(Errc::cancelled, "queue {} was destroyed before this was run", name_));
  progress_->complete(progress_->issued());
}

Status SteppedQueue::outcome(std::uint64_t number) const {
  TERRACE_TRY(progress_->poll(number));
  return {};
}

bool SteppedQueue::can_begin() const {
  if (inside_ || pending_.empty()) return false;
  const Piece& piece = pending_.front();
  return piece.kind != Piece::Kind::wait_for || progress_->failed() ||
         piece.awaited->is_done(piece.awaited_number);
}

void SteppedQueue::run_front() {
  const TimePoint began = clock_.now();
  const Piece::Kind kind = front().kind;
  const Phase phase = front().phase;
  const std::uint64_t number = front().number;
  if (progress_->failed()) {
    pending_.pop_front();
    last_end_ = clock_.now();
  } else {
    inside_ = true;
    const Result<std::size_t> moved = perform(std::move(pending_.front()), began);
    inside_ = false;
    last_end_ = clock_.now();
    if (!moved) {
      progress_->fail(number, moved.error());
    } else if (kind != Piece::Kind::wait_for) {
      counters_.add(phase, last_end_ - began, *moved);
    }
  }
  progress_->complete(number);
}

Result<std::size_t> SteppedQueue::perform(Piece piece, TimePoint began) {
  pending_.pop_front();
  switch (piece.kind) {
    case Piece::Kind::copy:
      piece.move_bytes();
      return piece.copy_bytes();
    case Piece::Kind::wait_for:
      return end_wait(piece, began);
    default:
      return piece.run_task();
  }
}

Result<std::size_t> SteppedQueue::end_wait(const Piece& piece, TimePoint began) {
  if (!pending_.empty()) {
    const TimePoint held_from =
        std::max({last_end_, piece.enqueued_at, pending_.front().enqueued_at});
    counters_.add_wait(std::max(Duration{}, began - held_from));
  }
  TERRACE_TRY(piece.awaited->poll(piece.awaited_number));
  return std::size_t{0};
}

Piece& SteppedQueue::new_piece() {
  Piece& piece = pending_.emplace_back();
  piece.number = progress_->issue();
  piece.enqueued_at = clock_.now();
  return piece;
}

Result<Ticket> SteppedQueue::do_copy(Phase phase, std::span<const CopyExtent> extents) {
  Piece& piece = new_piece();
  piece.make_copy(phase, extents);
  return Ticket{this, piece.number};
}

Result<Ticket> SteppedQueue::do_call(Phase phase, Task task) {
  Piece& piece = new_piece();
  piece.make_call(phase, std::move(task));
  return Ticket{this, piece.number};
}

Status SteppedQueue::do_wait_for(Ticket ticket) {
  const auto* const other = dynamic_cast<SteppedQueue*>(ticket.queue);
  if (other == nullptr || &other->stepper_ != &stepper_) {
    return fail(Errc::invalid_argument, "queue {}: the ticket of {} is another backend's", name_,
                ticket.queue->name());
  }
  TERRACE_TRY(offload::check_ticket(*other->progress_, ticket.number));
  new_piece().make_wait(other->progress_, ticket.number);
  return {};
}

Status SteppedQueue::do_wait_for_event(const Event& event) {
  new_piece().make_wait(offload::progress_of(event), offload::event_number);
  return {};
}

Result<bool> SteppedQueue::do_poll(Ticket ticket) {
  if (!is_done(ticket.number)) stepper_.step();
  return progress_->poll(ticket.number);
}

Status SteppedQueue::do_wait(Ticket ticket, Duration timeout) {
  return stepper_.run_until(*this, ticket.number, timeout);
}

}  // namespace terrace::doubles
