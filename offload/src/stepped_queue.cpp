#include "stepped_queue.hpp"

#include <algorithm>
#include <utility>

namespace terrace::offload {

Status Stepper::deadlock(const SteppedQueue& queue, std::uint64_t number) const {
  const auto blocked = std::ranges::count_if(queues_, [](auto* each) { return each->has_work(); });
  return fail(Errc::not_ready,
              "deadlock: piece {} of queue {} can never be done; {} queues with "
              "work are blocked",
              number, queue.name(), blocked);
}

SteppedQueue::SteppedQueue(SteppedQueueSetup setup)
    : setup_(std::move(setup)), progress_(std::make_shared<Progress>(setup_.name)) {
  setup_.stepper->add(*this);
}

SteppedQueue::~SteppedQueue() {
  setup_.stepper->remove(*this);
  if (!has_work()) return;
  const std::uint64_t first = running_ ? running_->number : pending_.front().number;
  progress_->fail(
      first, make_error(Errc::cancelled, "queue {} was destroyed before this was run", name()));
  progress_->complete(progress_->issued());
}

Status SteppedQueue::outcome(std::uint64_t number) const {
  TERRACE_TRY(progress_->poll(number));
  return {};
}

bool SteppedQueue::can_begin() const {
  if (running_ || inside_ || pending_.empty()) return false;
  const Piece& piece = pending_.front();
  return piece.kind != Piece::Kind::wait_for || progress_->failed() ||
         piece.awaited->is_done(piece.awaited_number);
}

SteppedQueue::Running& SteppedQueue::begin() {
  Piece piece = std::move(pending_.front());
  pending_.pop_front();
  Running running{.kind = piece.kind, .phase = piece.phase, .number = piece.number};
  running.began = setup_.clock->now();
  running.skipped = progress_->failed();
  inside_ = true;
  if (!running.skipped) perform(piece, running);
  inside_ = false;
  return running_.emplace(running);
}

void SteppedQueue::perform(Piece& piece, Running& running) {
  switch (piece.kind) {
    case Piece::Kind::copy:
      running.bytes = piece.copy_bytes();
      piece.move_bytes();
      return;
    case Piece::Kind::call:
    case Piece::Kind::launch:
      if (auto moved = piece.run_task()) {
        running.bytes = *moved;
      } else {
        running.status = tl::unexpected(moved.error());
      }
      return;
    case Piece::Kind::wait_for:
      if (auto done = piece.awaited->poll(piece.awaited_number); !done) {
        running.status = tl::unexpected(done.error());
      }
      if (!pending_.empty()) {
        const TimePoint held_from =
            std::max({last_end_, piece.enqueued_at, pending_.front().enqueued_at});
        counters_.add_wait(std::max(Duration{}, running.began - held_from));
      }
      return;
  }
}

void SteppedQueue::end() {
  const Running running = *running_;
  running_.reset();
  last_end_ = setup_.clock->now();
  if (!running.status) {
    progress_->fail(running.number, running.status.error());
  } else if (!running.skipped && running.kind != Piece::Kind::wait_for) {
    counters_.add(running.phase, last_end_ - running.began, running.bytes);
  }
  progress_->complete(running.number);
}

Piece& SteppedQueue::new_piece() {
  Piece& piece = pending_.emplace_back();
  piece.number = progress_->issue();
  piece.enqueued_at = setup_.clock->now();
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
  if (other == nullptr || other->setup_.stepper != setup_.stepper) {
    return fail(Errc::invalid_argument, "queue {}: the ticket of {} is another backend's", name(),
                ticket.queue->name());
  }
  TERRACE_TRY(check_ticket(*other->progress_, ticket.number));
  new_piece().make_wait(other->progress_, ticket.number);
  return {};
}

Result<bool> SteppedQueue::do_poll(Ticket ticket) {
  if (!is_done(ticket.number)) setup_.stepper->run_some();
  return progress_->poll(ticket.number);
}

Status SteppedQueue::do_wait(Ticket ticket, Duration timeout) {
  return setup_.stepper->run_until(*this, ticket.number, timeout);
}

}  // namespace terrace::offload
