#include "host_queue.hpp"

namespace terrace::offload {

Result<std::unique_ptr<Queue>> HostQueue::create(const WorkerQueueSetup& setup, Link* link) {
  std::unique_ptr<HostQueue> queue(new HostQueue(setup, link));
  TERRACE_TRY(queue->start());
  return queue;
}

HostQueue::HostQueue(const WorkerQueueSetup& setup, Link* link)
    : WorkerQueue(setup, std::make_shared<Progress>(setup.name)), link_(link) {}

void HostQueue::work(Piece& piece) {
  if (!is_skipped(piece)) {
    const Status done = piece.kind == Piece::Kind::wait_for ? await(piece) : perform(piece);
    if (!done) progress().fail(piece.number, done.error());
  }
  retire(piece);
}

bool HostQueue::steps_back(const Piece& piece) const {
  return piece.kind == Piece::Kind::wait_for && !piece.awaited->is_done(piece.awaited_number);
}

Status HostQueue::perform(Piece& piece) {
  const TimePoint counted_from = setup().clock->now();
  const TimePoint began = std::chrono::steady_clock::now();
  std::size_t bytes = 0;
  if (piece.kind == Piece::Kind::copy) {
    bytes = piece.copy_bytes();
    piece.move_bytes();
  } else {
    TERRACE_ASSIGN(bytes, piece.run_task());
  }
  if (bytes != 0) pay_for(piece.phase, began, bytes);
  count(piece, counted_from, setup().clock->now(), bytes);
  return {};
}

void HostQueue::pay_for(Phase phase, TimePoint began, std::size_t bytes) {
  if (link_ == nullptr) return;
  const auto direction = Link::direction_of(phase);
  if (!direction) return;
  const TimePoint end = link_->reserve(*direction, began, bytes);
  if (end > std::chrono::steady_clock::now()) pause_until(end);
}

}  // namespace terrace::offload
