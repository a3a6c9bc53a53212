#include "host_executor.hpp"

namespace terrace::offload {

Executor::Need HostExecutor::need(const Piece& piece) const {
  if (piece.kind != Piece::Kind::wait_for) return {};
  return {piece.awaited.get(), piece.awaited_number, Milestone::done};
}

void HostExecutor::carry_out(Piece& piece) {
  const std::uint64_t number = piece.number;
  if (!is_skipped(piece)) {
    const Status done = perform(piece);
    if (!done) progress()->fail(number, done.error());
  }
  piece.reset();
  progress()->complete(number);
}

void HostExecutor::stop() noexcept {
  Executor::stop();
  pause_.cut_short();
}

Status HostExecutor::perform(Piece& piece) {
  if (piece.kind == Piece::Kind::wait_for) {
    return piece.awaited->poll(piece.awaited_number).map([](bool) {});
  }
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
  count(piece.phase, counted_from, setup().clock->now(), bytes);
  return {};
}

void HostExecutor::pay_for(Phase phase, TimePoint began, std::size_t bytes) {
  if (link_ == nullptr) return;
  const auto direction = Link::direction_of(phase);
  if (!direction) return;
  const TimePoint end = link_->reserve(*direction, began, bytes);
  if (end > std::chrono::steady_clock::now()) pause_.until(end);
}

}  // namespace terrace::offload
