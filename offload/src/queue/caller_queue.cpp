#include "caller_queue.hpp"

namespace terrace::offload {

Result<Ticket> CallerQueue::enqueue(FunctionRef<void(Piece&)> make) {
  TERRACE_TRY(make_room());
  make(piece_);
  piece_.number = progress().issued() + 1;
  if (const Status met = await(piece_); !met) {
    piece_.reset();
    return tl::unexpected(met.error());
  }
  const Ticket ticket{this, progress().issue()};
  executor().carry_out(piece_);
  return ticket;
}

Status CallerQueue::await(const Piece& piece) {
  const Executor::Need need = executor().need(piece);
  if (need.is_met() || progress().failed()) return {};
  const TimePoint began = executor().setup().clock->now();
  const TimePoint deadline = deadline_after(limits().enqueue_timeout);
  const bool met =
      need.progress == &progress()
          ? await_done(need.number, deadline)
          : need.progress->wait_reached(need.number, need.milestone, deadline, limits().spin);
  if (piece.kind == Piece::Kind::wait_for) {
    executor().counters().add_wait(executor().setup().clock->now() - began);
  }
  if (met) return {};
  return fail(Errc::not_ready,
              "queue {}: piece {} of {} is not done in time, and the calling thread waits for it",
              name(), need.number, need.progress->name());
}

}  // namespace terrace::offload
