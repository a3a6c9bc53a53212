#include "cuda_queue.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "../spin.hpp"
#include "support/check.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/offload/cuda/enqueue.hpp"

namespace terrace::offload {
namespace {

using cuda::check;

constexpr Duration listen_first = std::chrono::microseconds(5);
constexpr Duration listen_most = std::chrono::microseconds(200);

thread_local const kernels::cuda::Launch* launch_under_way = nullptr;

}  // namespace

const kernels::cuda::Launch* current_cuda_launch() noexcept { return launch_under_way; }

CudaQueue::CudaQueue(WorkerQueueSetup setup, const CudaQueueSetup& cuda, LentMemory lent,
                     std::shared_ptr<StreamProgress> stream_progress)
    : WorkerQueue(setup, stream_progress),
      cuda_(cuda),
      lent_(std::move(lent)),
      stream_progress_(std::move(stream_progress)),
      copies_(cuda.piece_bytes),
      told_(setup.capacity) {}

Result<std::unique_ptr<Queue>> CudaQueue::create(WorkerQueueSetup setup, const CudaQueueSetup& cuda,
                                                 LentMemory lent) {
  TERRACE_TRY(check(cudaSetDevice(cuda.device), "choosing the device"));
  TERRACE_ASSIGN(auto stream_progress, StreamProgress::create(setup.name, setup.capacity));
  std::unique_ptr<CudaQueue> queue(
      new CudaQueue(setup, cuda, std::move(lent), std::move(stream_progress)));
  int least = 0;
  int greatest = 0;
  TERRACE_TRY(check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "asking for priorities"));
  TERRACE_TRY(check(cudaStreamCreateWithPriority(&queue->stream_, cudaStreamNonBlocking,
                                                 cuda.high_priority ? greatest : least),
                    "making a stream"));
  TERRACE_TRY(
      check(cudaMemsetAsync(queue->lent_.scratch(), 0,
                            kernels::cuda::scratch_words * sizeof(std::uint32_t), queue->stream_),
            "clearing memory"));
  TERRACE_TRY(queue->start());
  try {
    queue->listener_ = Thread([self = queue.get()] { self->listen(); });
  } catch (const std::system_error&) {
    return fail(Errc::out_of_memory, "queue {}: the system has no thread left", queue->name());
  }
  return queue;
}

CudaQueue::~CudaQueue() {
  stop();
  worker_ended_.store(true, std::memory_order_release);
  stream_progress_->wake();
  if (listener_.joinable()) listener_.join();
  if (abandoned_) {
    stream_progress_->abandon();
  } else if (stream_ != nullptr) {
    static_cast<void>(check(cudaStreamDestroy(stream_), "ending a stream"));
  }
}

Result<Ticket> CudaQueue::do_launch(Phase phase, Task task) {
  return WorkerQueue::enqueue([&](Piece& piece) { piece.make_launch(phase, std::move(task)); });
}

void CudaQueue::work(Piece& piece) {
  const std::uint64_t number = piece.number;
  ToldPiece& told = told_of(number);
  told = {};
  if (!is_skipped(piece)) {
    Status status = cuda_.health->check();
    if (status) status = check(cudaSetDevice(cuda_.device), "choosing the device");
    if (status) status = tell(piece, told);
    if (!status) note_failure(number, status.error());
  }
  stream_progress_->publish(number);
}

Status CudaQueue::tell(Piece& piece, ToldPiece& told) {
  if (piece.kind == Piece::Kind::call) return run_host_function(piece);
  TERRACE_TRY(stream_progress_->mark_begin(piece.number, stream_));
  Status done;
  if (piece.kind == Piece::Kind::wait_for) {
    done = wait_for(piece, told);
  } else {
    done = enqueue(piece).map([&](std::size_t bytes) {
      told.bytes = bytes;
      told.counted = true;
    });
  }
  // Also behind a failure: what was enqueued before it has to end before the piece does.
  const Status marked = stream_progress_->mark_end(piece.number, stream_);
  told.marked = marked.has_value();
  return done ? marked : done;
}

Status CudaQueue::run_host_function(Piece& piece) {
  progress().wait_done(piece.number - 1, TimePoint::max(), setup().spin);
  if (progress().failed()) return {};
  const TimePoint begin = setup().clock->now();
  TERRACE_ASSIGN(const std::size_t bytes, piece.run_task());
  count(piece, begin, setup().clock->now(), bytes);
  return {};
}

Status CudaQueue::wait_for(const Piece& piece, ToldPiece& told) {
  auto* const other = dynamic_cast<StreamProgress*>(piece.awaited.get());
  if (other == nullptr) return await(piece);
  const bool published = wait_interruptibly(piece.awaited, [&](const std::atomic<bool>& stopping) {
    return other->wait_published(piece.awaited_number, setup().spin, stopping);
  });
  if (!published) return tl::unexpected(cancelled());
  TERRACE_TRY(other->outcome(piece.awaited_number));
  told.counted = true;
  return other->put_behind(piece.awaited_number, stream_);
}

Result<std::size_t> CudaQueue::enqueue(Piece& piece) {
  moved_by(piece.number) = 0;
  const kernels::cuda::Launch launch{stream_, lent_.scratch(), &moved_by(piece.number)};
  if (piece.kind == Piece::Kind::copy) {
    TERRACE_TRY(enqueue_copies(piece.extents, launch));
    return piece.copy_bytes();
  }
  launch_under_way = &launch;
  Result<std::size_t> bytes = piece.run_task();
  launch_under_way = nullptr;
  return bytes;
}

Status CudaQueue::enqueue_copies(std::span<const CopyExtent> extents,
                                 const kernels::cuda::Launch& launch) {
  if (cuda_.by_kernel_below == 0) return copies_.enqueue(extents, stream_);
  by_kernel_.clear();
  by_engine_.clear();
  for (const CopyExtent& extent : extents) {
    (goes_by_kernel(extent) ? by_kernel_ : by_engine_).push_back(extent);
  }
  if (!by_kernel_.empty()) TERRACE_TRY(kernels::cuda::copy_extents(by_kernel_, launch));
  return by_engine_.empty() ? Status{} : copies_.enqueue(by_engine_, stream_);
}

bool CudaQueue::goes_by_kernel(const CopyExtent& extent) const {
  // What is not aligned a kernel copies byte by byte.
  return extent.bytes < cuda_.by_kernel_below && kernels::cuda::are_units(extent) &&
         cuda_.reachable->holds({extent.source, extent.bytes}) &&
         cuda_.reachable->holds({extent.target, extent.bytes});
}

void CudaQueue::note_failure(std::uint64_t number, const Error& error) {
  cuda_.health->note(error);
  progress().fail(number, error);
}

void CudaQueue::listen() {
  static_cast<void>(check(cudaSetDevice(cuda_.device), "choosing the device"));
  for (std::uint64_t number = 1;
       stream_progress_->wait_published(number, setup().spin, worker_ended_); ++number) {
    Piece& piece = piece_of(number);
    const ToldPiece& told = told_of(number);
    Status status;
    if (told.marked) status = await_device(number);
    if (!status) {
      note_failure(number, status.error());
    } else if (told.counted) {
      conclude(piece, told);
    }
    retire(piece);
  }
}

Status CudaQueue::await_device(std::uint64_t number) {
  if (abandoned_) return cuda_.health->check();
  const auto reached = [&] { return stream_progress_->reached(number); };
  Result<bool> done = false;
  const auto over = [&] {
    done = reached();
    return !done || *done;
  };
  if (spin_until(over, deadline_after(setup().spin))) return done.map([](bool) {});
  Duration pause = listen_first;
  TimePoint given_up = TimePoint::max();
  while (!over()) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (stopping() && given_up == TimePoint::max()) {
      given_up = deadline_after(setup().enqueue_timeout);
    }
    if (now > given_up) {
      abandoned_ = true;
      return fail(Errc::device_lost,
                  "queue {}: the device does not come to an end; end the program", name());
    }
    pause_until(now + pause);
    pause = std::min(2 * pause, listen_most);
  }
  return done.map([](bool) {});
}

void CudaQueue::conclude(const Piece& piece, const ToldPiece& told) {
  const Result<Duration> elapsed = stream_progress_->elapsed(piece.number);
  const Duration busy = elapsed ? *elapsed : Duration{};
  if (piece.kind == Piece::Kind::wait_for) {
    phase_counters().add_wait(busy);
    return;
  }
  const TimePoint end = setup().clock->now();
  count(piece, end - busy, end, told.bytes + moved_by(piece.number));
}

}  // namespace terrace::offload
