#include "stream_executor.hpp"

#include <utility>

#include "device_scope.hpp"
#include "queue/pause.hpp"
#include "support/check.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/offload/cuda/enqueue.hpp"

namespace terrace::offload {
namespace {

using cuda::check;

constexpr Duration cleared_pause = std::chrono::microseconds(200);

thread_local const kernels::cuda::Launch* launch_under_way = nullptr;

}  // namespace

const kernels::cuda::Launch* current_cuda_launch() noexcept { return launch_under_way; }

StreamExecutor::StreamExecutor(const ExecutorSetup& setup, const StreamSetup& on, LentMemory lent,
                               ExecutorStream stream)
    : Executor(setup, std::make_shared<StreamProgress>(
                          setup.name, MarkedStream{.device = on.device,
                                                   .stream = stream.stream,
                                                   .events = on.events,
                                                   .watch = on.watch,
                                                   .watched = this,
                                                   .always_watched = setup.observer != nullptr})),
      on_(on),
      lent_(std::move(lent)),
      stream_(stream),
      progress_(std::static_pointer_cast<StreamProgress>(Executor::progress())),
      copies_(on.piece_bytes) {}

Result<std::unique_ptr<Executor>> StreamExecutor::create(const ExecutorSetup& setup,
                                                         const StreamSetup& on, LentMemory lent,
                                                         ExecutorStream stream) {
  std::unique_ptr<StreamExecutor> executor(new StreamExecutor(setup, on, std::move(lent), stream));
  TERRACE_TRY(executor->clear_scratch());
  return executor;
}

Status StreamExecutor::clear_scratch() {
  TERRACE_TRY(
      check(cudaMemsetAsync(lent_.scratch(), 0,
                            kernels::cuda::scratch_words * sizeof(std::uint32_t), stream_.stream),
            "clearing memory"));
  TERRACE_ASSIGN(cleared_, on_.events->record(stream_.stream));
  return {};
}

StreamExecutor::~StreamExecutor() {
  const BesideCaptures beside_captures;
  await_device();
  on_.watch->leave(*this);
  if (stream_.borrowed || abandoned_.load()) return;
  static_cast<void>(check(cudaStreamDestroy(stream_.stream), "ending a stream"));
}

void StreamExecutor::await_device() {
  const TimePoint deadline = deadline_after(on_.ending_timeout);
  const std::uint64_t last = progress_->issued();
  look();
  if (progress_->wait_reached(last, Milestone::done, deadline, {}) && await_cleared(deadline)) {
    return;
  }
  abandoned_.store(true);
  while (!progress_->is_done(last)) look();
}

bool StreamExecutor::await_cleared(TimePoint deadline) {
  if (cleared_ == nullptr) return true;
  Pause pause;
  while (true) {
    const Result<bool> done = cuda::check_done(cudaEventQuery(cleared_), "clearing memory");
    if (!done || *done) break;  // a device that is lost does nothing more
    const TimePoint now = std::chrono::steady_clock::now();
    if (now > deadline) return false;
    pause.until(now + cleared_pause);
  }
  on_.events->give(cleared_);
  return true;
}

Executor::Need StreamExecutor::need(const Piece& piece) const {
  switch (piece.kind) {
    case Piece::Kind::call:
      return {progress_.get(), piece.number - 1, Milestone::done};
    case Piece::Kind::wait_for:
      return {piece.awaited.get(), piece.awaited_number, Milestone::told};
    case Piece::Kind::copy:
    case Piece::Kind::launch:
      return {};
  }
  return {};
}

void StreamExecutor::carry_out(Piece& piece) {
  ToldPiece told{.number = piece.number, .phase = piece.phase};
  if (!is_skipped(piece)) {
    Status status = on_.health->check();
    if (status) {
      const DeviceScope device(on_.device);
      status = device.status();
      if (status) status = tell(piece, told);
    }
    if (!status) note_failure(piece.number, status.error());
  }
  piece.reset();
  progress_->publish(told);
  if (!told.on_stream) look_once();
}

Status StreamExecutor::tell(Piece& piece, ToldPiece& told) {
  if (piece.kind == Piece::Kind::call) return run_host_function(piece);
  if (on_.times) {
    TERRACE_ASSIGN(told.begin, on_.events->record(stream_.stream));
  }
  // Also after a failure: work enqueued before it has to end before the piece does.
  told.on_stream = true;
  const Status done = enqueue(piece, told);
  if (!on_.times) return done;
  const Result<cudaEvent_t> end = on_.events->record(stream_.stream);
  told.end = end.value_or(nullptr);
  return done ? end.map([](cudaEvent_t) {}) : done;
}

Status StreamExecutor::run_host_function(Piece& piece) {
  const TimePoint begin = setup().clock->now();
  TERRACE_ASSIGN(const std::size_t bytes, piece.run_task());
  count(piece.phase, begin, setup().clock->now(), bytes);
  return {};
}

Status StreamExecutor::enqueue(Piece& piece, ToldPiece& told) {
  if (piece.kind == Piece::Kind::wait_for) {
    auto* const other = dynamic_cast<StreamProgress*>(piece.awaited.get());
    TERRACE_TRY(piece.awaited->outcome(piece.awaited_number));
    if (other == nullptr) return {};  // a host queue's, and done
    told.counts = ToldPiece::Counts::wait;
    return other->put_behind(piece.awaited_number, stream_.stream);
  }
  moved_by(piece.number) = 0;
  const kernels::cuda::Launch launch{stream_.stream, lent_.scratch(), &moved_by(piece.number)};
  told.counts = ToldPiece::Counts::work;
  if (piece.kind == Piece::Kind::copy) {
    told.bytes = piece.copy_bytes();
    return enqueue_copies(piece.extents, launch);
  }
  launch_under_way = &launch;
  const Result<std::size_t> bytes = piece.run_task();
  launch_under_way = nullptr;
  told.bytes = bytes.value_or(0);
  return bytes.map([](std::size_t) {});
}

Status StreamExecutor::enqueue_copies(std::span<const CopyExtent> extents,
                                      const kernels::cuda::Launch& launch) {
  if (on_.by_kernel_below == 0) return copies_.enqueue(extents, stream_.stream);
  by_kernel_.clear();
  by_engine_.clear();
  for (const CopyExtent& extent : extents) {
    (goes_by_kernel(extent) ? by_kernel_ : by_engine_).push_back(extent);
  }
  if (!by_kernel_.empty()) TERRACE_TRY(kernels::cuda::copy_extents(by_kernel_, launch));
  return by_engine_.empty() ? Status{} : copies_.enqueue(by_engine_, stream_.stream);
}

bool StreamExecutor::goes_by_kernel(const CopyExtent& extent) const {
  // A kernel copies unaligned memory byte by byte.
  return extent.bytes < on_.by_kernel_below && kernels::cuda::are_units(extent) &&
         on_.reachable->holds({extent.source, extent.bytes}) &&
         on_.reachable->holds({extent.target, extent.bytes});
}

void StreamExecutor::note_failure(std::uint64_t number, const Error& error) {
  on_.health->note(error);
  progress_->fail(number, error);
}

bool StreamExecutor::look_once() {
  // A second caller returns: the first one also looks at the pieces that are done meanwhile.
  if (looking_.test_and_set(std::memory_order_acquire)) return false;
  const BesideCaptures beside_captures;
  bool seen = false;
  cudaEvent_t reached = nullptr;  // a mark of a piece that is not yet forgotten
  while (const auto first = progress_->first()) {
    if (!is_over(*first, reached)) break;
    if (first->piece.end == reached) reached = nullptr;
    give_events(progress_->forget_first());
    progress_->complete(first->piece.number);
    seen = true;
  }
  looking_.clear(std::memory_order_release);
  return seen;
}

void StreamExecutor::give_events(const ToldPiece& piece) {
  // After the piece is forgotten: a queue that waits for a piece that is still to be found waits
  // for its events. A stream that does not come to an end keeps them.
  if (abandoned_.load()) return;
  for (const cudaEvent_t event : {piece.begin, piece.end}) {
    if (event != nullptr) on_.events->give(event);
  }
}

bool StreamExecutor::is_over(const StreamProgress::First& first, cudaEvent_t& reached) {
  const ToldPiece& piece = first.piece;
  if (!piece.on_stream) return true;
  if (abandoned_.load()) {
    note_failure(
        piece.number,
        make_error(Errc::device_lost,
                   "queue {}: the device does not come to an end; end the program", setup().name));
    return true;
  }
  if (first.unmarked) {
    note_failure(piece.number, *first.unmarked);
    return true;
  }
  if (first.mark == nullptr) return false;
  if (first.mark != reached) {
    const Result<bool> done = cuda::check_done(cudaEventQuery(first.mark), "working");
    if (!done) {
      note_failure(piece.number, done.error());
      return true;
    }
    if (!*done) return false;
    reached = first.mark;
  }
  conclude(piece);
  return true;
}

Duration StreamExecutor::time_of(const ToldPiece& piece) {
  float milliseconds = 0;
  if (piece.begin == nullptr || piece.end == nullptr ||
      !check(cudaEventElapsedTime(&milliseconds, piece.begin, piece.end), "taking times")) {
    return {};
  }
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<float, std::milli>(milliseconds));
}

void StreamExecutor::conclude(const ToldPiece& piece) {
  if (piece.counts == ToldPiece::Counts::nothing) return;
  const Duration busy = time_of(piece);
  if (piece.counts == ToldPiece::Counts::wait) {
    counters().add_wait(busy);
    return;
  }
  const TimePoint end = setup().clock->now();
  count(piece.phase, end - busy, end, piece.bytes + moved_by(piece.number));
}

}  // namespace terrace::offload
