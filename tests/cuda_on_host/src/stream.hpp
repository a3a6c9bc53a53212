// Streams and events of the stand-in.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "cuda_runtime.h"
#include "hand_over.hpp"

namespace cuda_on_host {

class FiberBlock;

/// A point in a stream's order: an event as it was recorded once.
class Mark {
 public:
  void reach();
  void wait();
  [[nodiscard]] bool reached() const;
  /// Seconds of a steady clock; only when reached.
  [[nodiscard]] double time() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable moved_;
  bool reached_ = false;
  double time_ = 0;
};

/// Returns when no stream accesses memory any more. A broken device's streams begin nothing: what
/// it is told to have broken has ended on all of it, as on a real one.
void await_rest();

/// Whether a handle means the legacy default stream.
bool is_default(cudaStream_t stream);

/// Returns the stream that a handle means: the default stream is made by its first use.
CUstream_st& stream_of(cudaStream_t stream);

}  // namespace cuda_on_host

/// A thread that takes work in order.
struct CUstream_st {
 public:
  CUstream_st();
  ~CUstream_st();

  void push(std::function<void()> work);
  /// Work that reads or writes memory. The work is not begun if the device is broken.
  void push_access(std::function<void()> access);
  void synchronize();
  [[nodiscard]] bool accesses_memory() const { return accesses_memory_.load(); }
  cuda_on_host::FiberBlock& block();

 private:
  void serve();

  std::atomic<bool> accesses_memory_{false};  ///< of its own: one for all would order streams
  cuda_on_host::HandOver work_;
  std::unique_ptr<cuda_on_host::FiberBlock> block_;  ///< of the thread
  std::thread thread_;
};

struct CUevent_st {
  std::mutex mutex;
  std::shared_ptr<cuda_on_host::Mark> last;  ///< null before the first record
  bool timed = true;
  bool captured = false;  ///< recorded last by a stream that was being captured
};
