#include "executed_queue.hpp"

#include <utility>

#include "event_progress.hpp"

namespace terrace::offload {

Status ExecutedQueue::make_room() {
  const std::uint64_t next = progress().issued() + 1;
  if (next <= limits_.capacity) return {};
  const std::uint64_t oldest = next - limits_.capacity;
  if (progress().is_done(oldest)) return {};
  if (progress().wait_reached(oldest, Milestone::done, deadline_after(limits_.enqueue_timeout),
                              limits_.spin)) {
    return {};
  }
  return fail(Errc::not_ready, "queue {} is full: {} pieces of work are enqueued", name(),
              limits_.capacity);
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
  if (awaited->is_done(ticket.number) && awaited->outcome(ticket.number)) return {};
  return enqueue([&](Piece& piece) { piece.make_wait(awaited, ticket.number); }).map([](Ticket) {});
}

Status ExecutedQueue::do_wait_for_event(const Event& event) {
  const std::shared_ptr<Progress> awaited = progress_of(event);
  return enqueue([&](Piece& piece) { piece.make_wait(awaited, event_number); }).map([](Ticket) {});
}

Result<bool> ExecutedQueue::do_poll(Ticket ticket) {
  if (!progress().is_done(ticket.number)) executor_->look();
  return progress().poll(ticket.number);
}

Status ExecutedQueue::do_wait(Ticket ticket, Duration timeout) {
  if (!progress().is_done(ticket.number)) executor_->look();
  if (progress().is_done(ticket.number)) return progress().outcome(ticket.number);
  return progress().wait(ticket.number, deadline_after(timeout), limits_.spin);
}

}  // namespace terrace::offload
