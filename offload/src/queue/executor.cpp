#include "executor.hpp"

namespace terrace::offload {

bool Executor::is_skipped(const Piece& piece) {
  if (progress_->failed()) return true;
  if (!stopping()) return false;
  progress_->fail(
      piece.number,
      make_error(Errc::cancelled, "queue {} was destroyed before this was run", setup_.name));
  return true;
}

void Executor::count(Phase phase, TimePoint begin, TimePoint end, std::size_t bytes) {
  counters_.add(phase, end - begin, bytes);
  if (setup_.observer != nullptr) {
    setup_.observer->on_work({setup_.name, phase, begin, end, bytes});
  }
}

}  // namespace terrace::offload
