// Runs the threads of a block as fibers of one thread of the host.
//
// A fiber runs until it needs another one: at a barrier, or where lanes of a warp exchange values.
// Switches order no memory for the thread sanitizer; barriers declare their order. Therefore an
// access that only a missing barrier would order is reported, although fibers never run at once.
//
// Built without the sanitizer's instrumentation (CMakeLists.txt): unordered fibers share the
// members of this class on purpose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cuda_on_host/vector_types.h"

namespace cuda_on_host {

/// Dynamic shared memory that a launch may ask for without raising the limit.
inline constexpr std::size_t dynamic_shared_bytes_max = std::size_t{48} << 10;

class FiberBlock {
 public:
  FiberBlock();
  ~FiberBlock();
  FiberBlock(const FiberBlock&) = delete;
  FiberBlock& operator=(const FiberBlock&) = delete;

  struct Shape {
    dim3 grid;
    dim3 threads;
    std::size_t dynamic_shared_bytes;
  };

  /// Runs `thread` once for each thread of block `block` of a grid. On the thread that made this.
  void run(const Shape& shape, uint3 block, const std::function<void()>& thread);

  // Called by the fiber that runs.
  void wait_for_block();
  bool wait_for_block_and(bool predicate);
  void wait_for_warp(unsigned mask, bool ordered);
  std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source);
  unsigned ballot(unsigned mask, bool predicate);

  /// The block whose fiber runs on this thread.
  static FiberBlock& current();

 private:
  static constexpr unsigned warp_lanes = 32;
  static constexpr unsigned votes = warp_lanes;
  enum class State : std::uint8_t { runnable, at_block_barrier, at_warp_barrier, ended };
  struct Fiber;
  struct Warp {
    unsigned arrived = 0;
    char order = 0;  ///< what its barrier is known by to the sanitizer
    std::uint64_t offered[warp_lanes] = {};
    unsigned source[warp_lanes] = {};      ///< whose offer a lane wants; `votes` for all of them
    std::uint64_t taken[warp_lanes] = {};  ///< what it got; dealt out when all have arrived
  };

  void add_fiber();
  void resume(unsigned index);
  void yield(State state);
  void open_block_barrier();
  void meet(unsigned mask);
  std::uint64_t offer(unsigned mask, std::uint64_t bits, unsigned source);
  [[noreturn]] void report_deadlock() const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  unsigned count_ = 0;
  unsigned running_ = 0;
  unsigned live_ = 0;
  unsigned at_barrier_ = 0;
  unsigned opened_ = 0;   ///< barriers of the block
  bool refused_[2] = {};  ///< whether a predicate did not hold at a barrier, in turns
  dim3 threads_;
  const std::function<void()>* thread_ = nullptr;
  bool stopping_ = false;
  void* main_fiber_ = nullptr;  ///< of the thread sanitizer
  char block_order_[2] = {};    ///< what barriers are known by to the sanitizer, in turns
  char begin_order_ = 0;
  char end_order_ = 0;
};

}  // namespace cuda_on_host
