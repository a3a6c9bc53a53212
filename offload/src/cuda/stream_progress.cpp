#include "stream_progress.hpp"

#include <utility>

#include "support/check.hpp"

namespace terrace::offload {

bool StreamProgress::publish(const ToldPiece& piece) {
  bool was_watched = false;
  {
    const std::scoped_lock lock(mutex_);
    told_.push_back(piece);
    was_watched = std::exchange(watched_, true);
  }
  tell(piece.number);
  return !was_watched;
}

std::optional<ToldPiece> StreamProgress::first() const {
  const std::scoped_lock lock(mutex_);
  return told_.empty() ? std::nullopt : std::optional(told_.front());
}

void StreamProgress::forget_first() {
  const std::scoped_lock lock(mutex_);
  told_.pop_front();
}

bool StreamProgress::keep_watching() {
  const std::scoped_lock lock(mutex_);
  watched_ = !told_.empty();
  return watched_;
}

Status StreamProgress::put_behind(std::uint64_t number, cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  if (told_.empty() || number < told_.front().number) return {};
  const ToldPiece& piece = told_[number - told_.front().number];
  if (!piece.events) return {};
  return cuda::check(cudaStreamWaitEvent(stream, piece.events->end, 0),
                     "waiting for another stream");
}

}  // namespace terrace::offload
