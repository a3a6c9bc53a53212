#include "executed_queue.hpp"

#include <algorithm>
#include <utility>

#include "event_progress.hpp"
#include "spin.hpp"

namespace terrace::offload {

Status ExecutedQueue::make_room() {
  const std::uint64_t next = progress().issued() + 1;
  if (next <= limits_.capacity) return {};
  const std::uint64_t oldest = next - limits_.capacity;
  if (await_done(oldest, deadline_after(limits_.enqueue_timeout))) return {};
  return fail(Errc::not_ready, "queue {} is full: {} pieces of work are enqueued", name(),
              limits_.capacity);
}

bool ExecutedQueue::await_done(std::uint64_t number, TimePoint deadline) {
  if (progress().is_done(number)) return true;
  progress().mark(number);
  const auto look_whether_done = [&] {
    executor_->look();
    return progress().is_done(number);
  };
  return look_whether_done() ||
         spin_until(look_whether_done, std::min(deadline, deadline_after(limits_.spin))) ||
         progress().wait_reached(number, Milestone::done, deadline, {});
}

Result<Ticket> ExecutedQueue::do_record() {
  const Ticket ticket{this, progress().last()};
  progress().mark(ticket.number);
  return ticket;
}

Result<Ticket> ExecutedQueue::do_copy(Phase phase, std::span<const CopyExtent> extents) {
  return enqueue([&](Piece& piece) { piece.make_copy(phase, extents); });
}

Result<Ticket> ExecutedQueue::do_call(Phase phase, Task task) {
  return enqueue([&](Piece& piece) { piece.make_call(phase, std::move(task)); });
}

Result<Ticket> ExecutedQueue::do_launch(Phase phase, Task task) {
  return enqueue([&](Piece& piece) { piece.make_launch(phase, std::move(task)); });
}

Status ExecutedQueue::do_wait_for(Ticket ticket) {
  const auto* const other = dynamic_cast<ExecutedQueue*>(ticket.queue);
  if (other == nullptr) {
    return fail(Errc::invalid_argument, "queue {}: the ticket of {} is another backend's", name(),
                ticket.queue->name());
  }
  const std::shared_ptr<Progress>& awaited = other->executor_->progress();
  TERRACE_TRY(check_ticket(*awaited, ticket.number));
  // Completed work delays nothing; a failure has to fail the work after it, in its turn.
  if (!awaited->is_done(ticket.number)) {
    awaited->mark(ticket.number);
    other->executor_->look();
  }
  if (awaited->is_done(ticket.number) && awaited->outcome(ticket.number)) return {};
  return enqueue([&](Piece& piece) { piece.make_wait(awaited, ticket.number); }).map([](Ticket) {});
}

Status ExecutedQueue::do_wait_for_event(const Event& event) {
  const std::shared_ptr<Progress> awaited = progress_of(event);
  return enqueue([&](Piece& piece) { piece.make_wait(awaited, event_number); }).map([](Ticket) {});
}

Result<bool> ExecutedQueue::do_poll(Ticket ticket) {
  if (!progress().is_done(ticket.number)) {
    progress().mark(ticket.number);
    executor_->look();
  }
  return progress().poll(ticket.number);
}

Status ExecutedQueue::do_wait(Ticket ticket, Duration timeout) {
  const TimePoint deadline = deadline_after(timeout);
  if (await_done(ticket.number, deadline)) return progress().outcome(ticket.number);
  return progress().wait(ticket.number, deadline, {});
}

}  // namespace terrace::offload
