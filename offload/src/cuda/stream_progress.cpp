#include "stream_progress.hpp"

#include <algorithm>
#include <utility>

#include "device_scope.hpp"
#include "support/check.hpp"

namespace terrace::offload {
namespace {

// Pieces without a mark, at most: a full queue is to wait for some of its work, not for all of it.
constexpr std::size_t unmarked_most = 64;

}  // namespace

void StreamProgress::publish(ToldPiece piece) {
  bool watch = false;
  {
    const std::scoped_lock lock(mutex_);
    told_.push_back(piece);
    unmarked_run_ = piece.end == nullptr ? unmarked_run_ + 1 : 0;
    const bool is_wanted =
        piece.number == to_be_marked_ || is_awaited() || unmarked_run_ >= unmarked_most;
    if (is_wanted && piece.on_stream) mark_or_fail(piece.number);
    watch = wants_watch() && !std::exchange(watched_, true);
  }
  tell(piece.number);
  if (watch) marked_.watch->announce(*marked_.watched);
}

std::optional<StreamProgress::First> StreamProgress::first() const {
  const std::scoped_lock lock(mutex_);
  if (told_.empty()) return std::nullopt;
  First first{.piece = told_.front(), .mark = find_mark(told_.front().number), .unmarked = {}};
  if (first.mark == nullptr) first.unmarked = unmarked_;
  return first;
}

ToldPiece StreamProgress::forget_first() {
  const std::scoped_lock lock(mutex_);
  const ToldPiece piece = told_.front();
  told_.pop_front();
  if (told_.empty()) unmarked_.reset();
  return piece;
}

bool StreamProgress::keep_watching() {
  const std::scoped_lock lock(mutex_);
  watched_ = !told_.empty() && wants_watch();
  return watched_;
}

Status StreamProgress::put_behind(std::uint64_t number, cudaStream_t stream) {
  const std::scoped_lock lock(mutex_);
  if (told_.empty() || number < told_.front().number) return {};
  if (!told_[number - told_.front().number].on_stream) return {};
  TERRACE_ASSIGN(const cudaEvent_t marked, mark_told(number));
  return cuda::check(cudaStreamWaitEvent(stream, marked, 0), "waiting for another stream");
}

void StreamProgress::mark(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  if (told_.empty() || number > told_.back().number) {
    to_be_marked_ = std::max(to_be_marked_, number);
  } else if (number >= told_.front().number) {
    mark_or_fail(number);
  }
}

void StreamProgress::on_awaited(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  // If the piece is not told yet, publish() will see that somebody waits.
  if (told_.empty() || number < told_.front().number || number > told_.back().number) return;
  mark_or_fail(number);
  // With the mutex held: the executor lives while pieces are told.
  if (!std::exchange(watched_, true)) marked_.watch->announce(*marked_.watched);
}

void StreamProgress::mark_or_fail(std::uint64_t number) {
  if (const Result<cudaEvent_t> marked = mark_told(number); !marked) unmarked_ = marked.error();
}

cudaEvent_t StreamProgress::find_mark(std::uint64_t number) const {
  for (std::size_t at = number - told_.front().number; at < told_.size(); ++at) {
    if (told_[at].end != nullptr) return told_[at].end;
  }
  return nullptr;
}

Result<cudaEvent_t> StreamProgress::mark_told(std::uint64_t number) {
  if (const cudaEvent_t mark = find_mark(number); mark != nullptr) return mark;
  const DeviceScope device(marked_.device);
  TERRACE_TRY(device.status());
  TERRACE_ASSIGN(told_.back().end, marked_.events->record(marked_.stream));
  unmarked_run_ = 0;
  return told_.back().end;
}

}  // namespace terrace::offload
