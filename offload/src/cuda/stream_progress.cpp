#include "stream_progress.hpp"

#include "support/check.hpp"

namespace terrace::offload {

using cuda::check;

Result<std::shared_ptr<StreamProgress>> StreamProgress::create(std::string name,
                                                               std::size_t capacity) {
  std::shared_ptr<StreamProgress> progress(new StreamProgress(std::move(name)));
  progress->slots_.resize(capacity);
  for (Slot& slot : progress->slots_) {
    for (cudaEvent_t* const event : {&slot.begin, &slot.end}) {
      TERRACE_TRY(check(cudaEventCreateWithFlags(event, cudaEventBlockingSync), "making an event"));
    }
  }
  return progress;
}

StreamProgress::~StreamProgress() {
  for (const Slot& slot : slots_) {
    if (slot.begin != nullptr) static_cast<void>(check(cudaEventDestroy(slot.begin), "an event"));
    if (slot.end != nullptr) static_cast<void>(check(cudaEventDestroy(slot.end), "an event"));
  }
}

Status StreamProgress::mark_begin(std::uint64_t number, cudaStream_t stream) {
  return check(cudaEventRecord(slot(number).begin, stream), "recording an event");
}

Status StreamProgress::mark_end(std::uint64_t number, cudaStream_t stream) {
  const std::scoped_lock lock(events_mutex_);
  TERRACE_TRY(check(cudaEventRecord(slot(number).end, stream), "recording an event"));
  slot(number).number = number;
  return {};
}

void StreamProgress::publish(std::uint64_t number) {
  published_.store(number, std::memory_order_seq_cst);
  wake_sleepers(number);
}

bool StreamProgress::wait_published(std::uint64_t number, Duration spin,
                                    const std::atomic<bool>& give_up) {
  const auto published = [&] { return published_.load(std::memory_order_seq_cst) >= number; };
  wait_until(
      number, [&] { return published() || give_up.load(std::memory_order_acquire); },
      TimePoint::max(), spin);
  return published();
}

Status StreamProgress::put_behind(std::uint64_t number, cudaStream_t stream) {
  const std::scoped_lock lock(events_mutex_);
  // A slot taken over: the piece is done. A slot not marked: a host function, and so is done, too.
  if (slots_.empty() || slot(number).number != number) return {};
  return check(cudaStreamWaitEvent(stream, slot(number).end, 0), "waiting for another stream");
}

Result<bool> StreamProgress::reached(std::uint64_t number) const {
  return cuda::check_done(cudaEventQuery(slot(number).end), "working");
}

Result<Duration> StreamProgress::elapsed(std::uint64_t number) const {
  float milliseconds = 0;
  const Slot& marks = slot(number);
  TERRACE_TRY(check(cudaEventElapsedTime(&milliseconds, marks.begin, marks.end), "taking times"));
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<float, std::milli>(milliseconds));
}

}  // namespace terrace::offload
