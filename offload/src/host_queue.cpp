#include "host_queue.hpp"

#include <pthread.h>
#include <sys/prctl.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "spin.hpp"
#include "terrace/core/assert.hpp"

namespace terrace::offload {

Result<std::unique_ptr<Queue>> HostQueue::create(HostQueueSetup setup) {
  std::unique_ptr<HostQueue> queue(new HostQueue(std::move(setup)));
  try {
    queue->worker_ = std::thread([self = queue.get()] { self->serve(); });
  } catch (const std::system_error&) {
    return fail(Errc::out_of_memory, "queue {}: the system has no thread left", queue->name());
  }
  pthread_setname_np(queue->worker_.native_handle(), queue->setup_.name.substr(0, 15).c_str());
  return queue;
}

HostQueue::HostQueue(HostQueueSetup setup)
    : setup_(std::move(setup)),
      progress_(std::make_shared<Progress>(setup_.name)),
      pieces_(setup_.capacity),
      ready_(setup_.capacity),
      free_(setup_.capacity) {
  for (Piece& piece : pieces_) free_.push(&piece);
}

HostQueue::~HostQueue() {
  if (!worker_.joinable()) return;
  std::shared_ptr<Progress> awaiting;
  {
    const std::scoped_lock lock(stop_mutex_);
    stopping_.store(true, std::memory_order_release);
    awaiting = awaiting_;
  }
  link_wait_ends_.notify_all();
  if (awaiting != nullptr) awaiting->wake();
  bell_.fetch_add(1, std::memory_order_seq_cst);
  bell_.notify_one();
  worker_.join();
}

Result<Piece*> HostQueue::free_piece() {
  Piece* piece = nullptr;
  if (free_.pop(piece)) return piece;
  const std::uint64_t oldest = progress_->issued() - setup_.capacity + 1;
  progress_->wait_done(oldest, deadline_after(setup_.enqueue_timeout), setup_.spin);
  if (free_.pop(piece)) return piece;
  return fail(Errc::not_ready, "queue {} is full: {} pieces of work are enqueued", name(),
              setup_.capacity);
}

Ticket HostQueue::hand_over(Piece* piece) {
  piece->number = progress_->issue();
  piece->enqueued_at = setup_.clock->now();
  const std::uint64_t number = piece->number;  // the piece belongs to the worker once it is pushed
  const bool pushed = ready_.push(piece);
  TERRACE_ASSERT(pushed);
  bell_.fetch_add(1, std::memory_order_seq_cst);
  bell_.notify_one();
  return {this, number};
}

Result<Ticket> HostQueue::do_copy(Phase phase, std::span<const CopyExtent> extents) {
  TERRACE_ASSIGN(Piece* const piece, free_piece());
  piece->make_copy(phase, extents);
  return hand_over(piece);
}

Result<Ticket> HostQueue::do_call(Phase phase, Task task) {
  TERRACE_ASSIGN(Piece* const piece, free_piece());
  piece->make_call(phase, std::move(task));
  return hand_over(piece);
}

Status HostQueue::do_wait_for(Ticket ticket) {
  const auto* const other = dynamic_cast<HostQueue*>(ticket.queue);
  if (other == nullptr) {
    return fail(Errc::invalid_argument, "queue {}: the ticket of {} is another backend's", name(),
                ticket.queue->name());
  }
  TERRACE_TRY(check_ticket(*other->progress_, ticket.number));
  TERRACE_ASSIGN(Piece* const piece, free_piece());
  piece->make_wait(other->progress_, ticket.number);
  hand_over(piece);
  return {};
}

Status HostQueue::do_wait(Ticket ticket, Duration timeout) {
  return progress_->wait(ticket.number, deadline_after(timeout), setup_.spin);
}

void HostQueue::serve() {
  // An imitated link ends its transfers by a timer; the default slack of 50 us would blur it.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  while (Piece* const piece = next_piece()) {
    carry_out(*piece);
    const std::uint64_t number = piece->number;
    piece->reset();
    free_.push(piece);
    progress_->complete(number);
  }
}

Piece* HostQueue::next_piece() {
  Piece* piece = nullptr;
  const auto ready = [&] { return ready_.pop(piece); };
  if (ready()) return piece;
  if (spin_until(ready, deadline_after(setup_.spin))) return piece;
  while (true) {
    const std::uint32_t rung = bell_.load(std::memory_order_seq_cst);
    if (ready()) return piece;
    if (stopping_.load(std::memory_order_acquire)) return nullptr;
    bell_.wait(rung, std::memory_order_seq_cst);
  }
}

void HostQueue::carry_out(Piece& piece) {
  if (progress_->failed()) return;
  if (stopping_.load(std::memory_order_acquire)) {
    return progress_->fail(piece.number, cancelled());
  }
  if (const Status status = perform(piece); !status) progress_->fail(piece.number, status.error());
}

Error HostQueue::cancelled() const {
  return make_error(Errc::cancelled, "queue {} was destroyed before this was run", name());
}

Status HostQueue::perform(Piece& piece) {
  if (piece.kind == Piece::Kind::wait_for) return await(piece);
  const TimePoint counted_from = setup_.clock->now();
  const TimePoint began = std::chrono::steady_clock::now();
  std::size_t bytes = 0;
  if (piece.kind == Piece::Kind::copy) {
    bytes = piece.copy_bytes();
    piece.move_bytes();
  } else {
    TERRACE_ASSIGN(bytes, piece.run_task());
  }
  if (bytes != 0) pay_for(piece.phase, began, bytes);
  const TimePoint ended = setup_.clock->now();
  counters_.add(piece.phase, ended - counted_from, bytes);
  if (setup_.observer != nullptr) {
    setup_.observer->on_work({setup_.name, piece.phase, counted_from, ended, bytes});
  }
  return {};
}

Status HostQueue::await(const Piece& piece) {
  const TimePoint began = setup_.clock->now();
  {
    const std::scoped_lock lock(stop_mutex_);
    awaiting_ = piece.awaited;
  }
  const bool done =
      piece.awaited->wait_done(piece.awaited_number, TimePoint::max(), setup_.spin, &stopping_);
  {
    const std::scoped_lock lock(stop_mutex_);
    awaiting_.reset();
  }
  if (!done) return tl::unexpected(cancelled());
  if (ready_.read_available() != 0) {
    // Standing still costs only from when there is work to hold up.
    const TimePoint held_from = std::max(began, ready_.front()->enqueued_at);
    counters_.add_wait(std::max(Duration{}, setup_.clock->now() - held_from));
  }
  TERRACE_TRY(piece.awaited->poll(piece.awaited_number));
  return {};
}

void HostQueue::pay_for(Phase phase, TimePoint began, std::size_t bytes) {
  if (setup_.link == nullptr) return;
  const auto lane = Link::lane_of(phase);
  if (!lane) return;
  const TimePoint end = setup_.link->reserve(*lane, began, bytes);
  if (end <= std::chrono::steady_clock::now()) return;
  std::unique_lock lock(stop_mutex_);
  link_wait_ends_.wait_until(lock, end, [&] { return stopping_.load(std::memory_order_relaxed); });
}

}  // namespace terrace::offload
