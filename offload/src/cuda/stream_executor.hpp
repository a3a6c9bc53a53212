// Carries pieces out by a stream: tells the device of them, and hears of their end.
//
// The device is told of a piece when nothing before it can fail any more but the device itself: a
// host function was run, and a queue waited for has told the device of the work awaited, before
// any later piece is put on the stream. So work after a failure is never started, though the device
// runs on its own. The device waits between streams; a piece needs only that another queue has told
// its device, or that a host queue has done its work (Executor::need), and the queue ensures that.
//
// A piece ends with an event only where somebody waits for it (stream_progress.hpp), and with two
// of them where times are measured. Callers that wait or poll notice the end of a piece, and while
// threads sleep until then, or an observer wants to know, the backend's StreamWatch does.
#pragma once

#include <cuda_runtime.h>

#include <atomic>
#include <memory>
#include <vector>

#include "copy_batch.hpp"
#include "cuda_memory.hpp"
#include "device_health.hpp"
#include "queue/executor.hpp"
#include "stream_progress.hpp"
#include "stream_watch.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::offload {

struct StreamSetup {
  int device = 0;
  std::size_t capacity = 0;                    ///< of the queue
  Duration ending_timeout{};                   ///< how long an end waits for the device
  std::size_t piece_bytes = 0;                 ///< of locked memory: CopyBatch
  std::size_t by_kernel_below = 0;             ///< CudaBackendOptions::switch_over_bytes
  const ReachableMemory* reachable = nullptr;  ///< by kernels
  bool times = false;                          ///< CudaBackendOptions::times, or an observer
  DeviceHealth* health = nullptr;
  EventPool* events = nullptr;
  StreamWatch* watch = nullptr;
};

/// A stream that an executor uses.
struct ExecutorStream {
  cudaStream_t stream = nullptr;
  bool borrowed = false;  ///< otherwise the stream ends with its executor
};

class StreamExecutor final : public Executor, private WatchedStream {
 public:
  /// Errors: device_lost; out_of_memory when the device has no memory left.
  [[nodiscard]] static Result<std::unique_ptr<Executor>> create(const ExecutorSetup& setup,
                                                                const StreamSetup& on,
                                                                LentMemory lent,
                                                                ExecutorStream stream);
  ~StreamExecutor() override;

  [[nodiscard]] Need need(const Piece& piece) const override;
  [[nodiscard]] bool is_brief(Piece::Kind kind) const noexcept override {
    return kind != Piece::Kind::call;
  }
  void carry_out(Piece& piece) override;
  void look() override { look_once(); }

 private:
  StreamExecutor(const ExecutorSetup& setup, const StreamSetup& on, LentMemory lent,
                 ExecutorStream stream);

  Status clear_scratch();

  // Telling the device.
  Status tell(Piece& piece, ToldPiece& told);
  Status run_host_function(Piece& piece);
  Status enqueue(Piece& piece, ToldPiece& told);
  Status enqueue_copies(std::span<const CopyExtent> extents, const kernels::cuda::Launch& launch);
  [[nodiscard]] bool goes_by_kernel(const CopyExtent& extent) const;
  void note_failure(std::uint64_t number, const Error& error);
  [[nodiscard]] std::uint64_t& moved_by(std::uint64_t number) noexcept {
    return lent_.moved()[number % on_.capacity];
  }

  // Hearing of its end.
  /// Records nothing: the stream may be the embedder's, and the thread the watch's.
  bool look_once() override;
  bool keep_watching() override { return progress_->keep_watching(); }
  /// Returns whether the first piece is done, well or not. `reached` is a mark that is known to be
  /// reached, and is set to the piece's.
  [[nodiscard]] bool is_over(const StreamProgress::First& first, cudaEvent_t& reached);
  void give_events(const ToldPiece& piece);
  /// How long the device was at a piece; zero if times are not measured.
  [[nodiscard]] static Duration time_of(const ToldPiece& piece);
  void conclude(const ToldPiece& piece);
  void await_device();
  /// Waits until the scratch memory is cleared, which may have been enqueued without a piece after
  /// it. Returns whether it is cleared.
  bool await_cleared(TimePoint deadline);

  StreamSetup on_;
  LentMemory lent_;
  ExecutorStream stream_;
  std::shared_ptr<StreamProgress> progress_;
  cudaEvent_t cleared_ = nullptr;  ///< at the end of the clearing of scratch memory
  CopyBatch copies_;
  std::vector<CopyExtent> by_kernel_;
  std::vector<CopyExtent> by_engine_;
  std::atomic_flag looking_;            ///< somebody looks what is done
  std::atomic<bool> abandoned_{false};  ///< the device does not come to an end
};

}  // namespace terrace::offload
