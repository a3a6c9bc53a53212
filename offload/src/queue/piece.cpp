#include "piece.hpp"

#include <cstring>
#include <utility>

namespace terrace::offload {

void Piece::make_copy(Phase for_phase, std::span<const CopyExtent> of) {
  kind = Kind::copy;
  phase = for_phase;
  extents.assign(of.begin(), of.end());
}

void Piece::make_call(Phase for_phase, Task of) {
  kind = Kind::call;
  phase = for_phase;
  task = std::move(of);
}

void Piece::make_launch(Phase for_phase, Task of) {
  make_call(for_phase, std::move(of));
  kind = Kind::launch;
}

void Piece::make_wait(std::shared_ptr<Progress> of, std::uint64_t until) {
  kind = Kind::wait_for;
  awaited = std::move(of);
  awaited_number = until;
}

std::size_t Piece::copy_bytes() const noexcept {
  std::size_t bytes = 0;
  for (const CopyExtent& extent : extents) bytes += extent.bytes;
  return bytes;
}

void Piece::move_bytes() const noexcept {
  for (const CopyExtent& extent : extents) {
    if (extent.bytes != 0) std::memcpy(extent.target, extent.source, extent.bytes);
  }
}

Result<std::size_t> Piece::run_task() noexcept {
  // An embedder's function may throw; the exception must not leave the worker.
  try {
    Result<std::size_t> moved = task();
    task.reset();
    return moved;
  } catch (...) {
    task.reset();
    return fail(Errc::device_error, "a {} function on a queue threw an exception",
                to_string(phase));
  }
}

void Piece::reset() noexcept {
  extents.clear();
  task.reset();
  awaited.reset();
  began_waiting = {};
}

Status check_ticket(const Progress& progress, std::uint64_t number) {
  if (number <= progress.issued()) return {};
  return fail(Errc::invalid_argument, "queue {}: no work has number {}; {} were enqueued",
              progress.name(), number, progress.issued());
}

}  // namespace terrace::offload
