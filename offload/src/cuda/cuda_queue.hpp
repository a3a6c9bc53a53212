// A queue that is a stream: one thread tells the device of the work, another hears of its end.
//
// The device is told of a piece when nothing before it can fail any more but the device itself: a
// host function is run, and a queue waited for has told the device of the work awaited, before
// anything behind it is put on the stream. So what is behind a failure is never started, though the
// device runs on its own. Waits between streams are the device's; a wait for a host queue is this
// thread's.
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "../worker_queue.hpp"
#include "copy_batch.hpp"
#include "cuda_memory.hpp"
#include "device_health.hpp"
#include "stream_progress.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::offload {

struct CudaQueueSetup {
  int device = 0;
  bool high_priority = false;
  std::size_t piece_bytes = 0;                 ///< of locked memory: CopyBatch
  std::size_t by_kernel_below = 0;             ///< CudaBackendOptions::switch_over_bytes
  const ReachableMemory* reachable = nullptr;  ///< by kernels
  DeviceHealth* health = nullptr;
};

class CudaQueue final : public WorkerQueue {
 public:
  /// Errors: device_lost; out_of_memory when the system has no thread left, or the device no
  /// memory.
  [[nodiscard]] static Result<std::unique_ptr<Queue>> create(WorkerQueueSetup setup,
                                                             const CudaQueueSetup& cuda,
                                                             LentMemory lent);
  ~CudaQueue() override;

 private:
  /// What the thread that tells the device leaves to the one that hears.
  struct ToldPiece {
    bool marked = false;  ///< the device will say when it is done
    bool counted = false;
    std::size_t bytes = 0;
  };

  CudaQueue(WorkerQueueSetup setup, const CudaQueueSetup& cuda, LentMemory lent,
            std::shared_ptr<StreamProgress> stream_progress);

  Result<Ticket> do_launch(Phase phase, Task task) override;

  // The worker's side: telling the device.
  void work(Piece& piece) override;
  /// Waits between streams are the device's: the lane has no other queue.
  [[nodiscard]] bool steps_back(const Piece&) const override { return false; }
  Status tell(Piece& piece, ToldPiece& told);
  Status run_host_function(Piece& piece);
  Status wait_for(const Piece& piece, ToldPiece& told);
  Result<std::size_t> enqueue(Piece& piece);
  Status enqueue_copies(std::span<const CopyExtent> extents, const kernels::cuda::Launch& launch);
  [[nodiscard]] bool goes_by_kernel(const CopyExtent& extent) const;
  void note_failure(std::uint64_t number, const Error& error);
  [[nodiscard]] ToldPiece& told_of(std::uint64_t number) noexcept {
    return told_[number % told_.size()];
  }
  [[nodiscard]] std::uint64_t& moved_by(std::uint64_t number) noexcept {
    return lent_.moved()[number % told_.size()];
  }

  // The listener's side: hearing of its end.
  void listen();
  Status await_device(std::uint64_t number);
  void conclude(const Piece& piece, const ToldPiece& told);

  CudaQueueSetup cuda_;
  LentMemory lent_;
  std::shared_ptr<StreamProgress> stream_progress_;
  cudaStream_t stream_ = nullptr;
  CopyBatch copies_;
  std::vector<CopyExtent> by_kernel_;
  std::vector<CopyExtent> by_engine_;
  std::vector<ToldPiece> told_;
  std::atomic<bool> worker_ended_{false};
  bool abandoned_ = false;  ///< the device does not come to an end
  Thread listener_;
};

}  // namespace terrace::offload
