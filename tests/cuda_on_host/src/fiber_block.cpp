#include "fiber_block.hpp"

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cuda_on_host/device_language.h"
#include "sanitizers.hpp"

constinit thread_local uint3 threadIdx{};
constinit thread_local uint3 blockIdx{};
constinit thread_local dim3 blockDim{};
constinit thread_local dim3 gridDim{};
thread_local uint4 dynamic_shared_memory[cuda_on_host::dynamic_shared_bytes_max / sizeof(uint4)];

namespace cuda_on_host {
namespace {

namespace context = boost::context;

constexpr std::size_t stack_bytes = std::size_t{64} << 10;
thread_local FiberBlock* running_block = nullptr;

[[noreturn]] void stop(const char* what) {
  std::fprintf(stderr, "cuda_on_host: block (%u, %u, %u), thread %u: %s\n", blockIdx.x, blockIdx.y,
               blockIdx.z, threadIdx.x, what);
  std::abort();
}

/// Shared memory begins as NaN, and ends where the launch said.
void offer_dynamic_shared(std::size_t bytes) {
  auto* const begin = reinterpret_cast<char*>(dynamic_shared_memory);
  allow_access(begin, dynamic_shared_bytes_max);
  std::memset(begin, 0xff, bytes);
  forbid_access(begin + bytes, dynamic_shared_bytes_max - bytes);
}

/// Stacks whose memory may become anything once they are given back: a fiber leaves its first
/// frames without returning from them, so that the sanitizer holds them for alive.
class Stacks {
 public:
  static context::stack_context allocate() { return mapped().allocate(); }
  static void deallocate(context::stack_context& memory) {
    allow_access(static_cast<char*>(memory.sp) - memory.size, memory.size);
    mapped().deallocate(memory);
  }

 private:
  static context::protected_fixedsize_stack mapped() {
    return context::protected_fixedsize_stack(stack_bytes);
  }
};

}  // namespace

struct FiberBlock::Fiber {
  context::fiber context;
  context::fiber caller;
  StackBounds stack;
  StackBounds caller_stack;
  void* own_sanitizer_fiber = nullptr;
  State state = State::ended;
  unsigned block_barriers = 0;
};

FiberBlock::FiberBlock() : main_fiber_(current_sanitizer_fiber()) {}

FiberBlock::~FiberBlock() {
  allow_access(reinterpret_cast<char*>(dynamic_shared_memory), dynamic_shared_bytes_max);
  stopping_ = true;
  for (unsigned i = 0; i < fibers_.size(); ++i) {
    resume(i);
    destroy_sanitizer_fiber(fibers_[i]->own_sanitizer_fiber);
  }
}

FiberBlock& FiberBlock::current() { return *running_block; }

void FiberBlock::add_fiber() {
  fibers_.push_back(std::make_unique<Fiber>());
  Fiber& self = *fibers_.back();
  self.own_sanitizer_fiber = create_sanitizer_fiber();
  const context::stack_context memory = Stacks::allocate();
  self.stack = {static_cast<char*>(memory.sp) - memory.size, memory.size};
  self.context =
      context::fiber(std::allocator_arg, context::preallocated(memory.sp, memory.size, memory),
                     Stacks(), [this, &self](context::fiber&& caller) {
                       self.caller = std::move(caller);
                       enter_stack(nullptr, &self.caller_stack);
                       while (!stopping_) {
                         order_after(&begin_order_);
                         (*thread_)();
                         order_before(&end_order_);
                         yield(State::ended);
                       }
                       switch_sanitizer_fiber(main_fiber_);
                       leave_stack(nullptr, self.caller_stack);
                       return std::move(self.caller);
                     });
}

void FiberBlock::resume(unsigned index) {
  Fiber& fiber = *fibers_[index];
  running_ = index;
  threadIdx = {index % threads_.x, index / threads_.x % threads_.y,
               index / (threads_.x * threads_.y)};
  void* fake_stack = nullptr;
  leave_stack(&fake_stack, fiber.stack);
  switch_sanitizer_fiber(fiber.own_sanitizer_fiber);
  fiber.context = std::move(fiber.context).resume();
  enter_stack(fake_stack, nullptr);
}

void FiberBlock::yield(State state) {
  Fiber& fiber = *fibers_[running_];
  fiber.state = state;
  void* fake_stack = nullptr;
  leave_stack(&fake_stack, fiber.caller_stack);
  switch_sanitizer_fiber(main_fiber_);
  fiber.caller = std::move(fiber.caller).resume();
  enter_stack(fake_stack, &fiber.caller_stack);
}

void FiberBlock::run(const Shape& shape, uint3 block, const std::function<void()>& thread) {
  gridDim = shape.grid;
  blockDim = shape.threads;
  blockIdx = block;
  threads_ = shape.threads;
  thread_ = &thread;
  count_ = threads_.x * threads_.y * threads_.z;
  offer_dynamic_shared(shape.dynamic_shared_bytes);
  while (fibers_.size() < count_) add_fiber();
  warps_.assign((count_ + warp_lanes - 1) / warp_lanes, {});
  for (unsigned i = 0; i < count_; ++i) {
    fibers_[i]->state = State::runnable;
    fibers_[i]->block_barriers = 0;
  }
  live_ = count_;
  at_barrier_ = opened_ = 0;
  refused_[0] = refused_[1] = false;
  running_block = this;
  order_before(&begin_order_);
  while (live_ > 0) {
    bool moved = false;
    for (unsigned i = 0; i < count_; ++i) {
      if (fibers_[i]->state != State::runnable) continue;
      moved = true;
      resume(i);
      if (fibers_[i]->state == State::ended) --live_;
    }
    if (at_barrier_ > 0 && at_barrier_ == live_) {
      open_block_barrier();
    } else if (!moved) {
      report_deadlock();
    }
  }
  order_after(&end_order_);
  running_block = nullptr;
}

void FiberBlock::open_block_barrier() {
  at_barrier_ = 0;
  refused_[++opened_ % 2] = false;  // of the barrier to come: all have left the one before
  for (unsigned i = 0; i < count_; ++i) {
    if (fibers_[i]->state == State::at_block_barrier) fibers_[i]->state = State::runnable;
  }
}

void FiberBlock::wait_for_block() {
  Fiber& fiber = *fibers_[running_];
  // Two places in turn: a thread that arrives early at the next barrier must not seem to be ordered
  // by this one.
  char* const order = &block_order_[fiber.block_barriers++ % 2];
  order_before(order);
  ++at_barrier_;
  yield(State::at_block_barrier);
  order_after(order);
}

bool FiberBlock::wait_for_block_and(bool predicate) {
  bool& refused = refused_[opened_ % 2];
  if (!predicate) refused = true;
  wait_for_block();
  return !refused;
}

void FiberBlock::meet(unsigned mask) {
  Warp& warp = warps_[running_ / warp_lanes];
  const unsigned lane = running_ % warp_lanes;
  if ((mask >> lane & 1U) == 0) stop("a lane is not in the mask that it names");
  warp.arrived |= 1U << lane;
  if ((warp.arrived & mask) != mask) return yield(State::at_warp_barrier);
  warp.arrived &= ~mask;
  std::uint64_t ballot = 0;
  for (unsigned i = 0; i < warp_lanes; ++i) {
    if ((mask >> i & 1U) != 0 && warp.offered[i] != 0) ballot |= std::uint64_t{1} << i;
  }
  const unsigned first = running_ / warp_lanes * warp_lanes;
  for (unsigned i = 0; i < warp_lanes; ++i) {
    if ((mask >> i & 1U) == 0) continue;
    warp.taken[i] = warp.source[i] == votes ? ballot : warp.offered[warp.source[i]];
    if (i != lane) fibers_[first + i]->state = State::runnable;
  }
}

void FiberBlock::wait_for_warp(unsigned mask, bool ordered) {
  if (!ordered) return meet(mask);
  char* const order = &warps_[running_ / warp_lanes].order;
  order_before(order);
  meet(mask);
  order_after(order);
}

std::uint64_t FiberBlock::offer(unsigned mask, std::uint64_t bits, unsigned source) {
  Warp& warp = warps_[running_ / warp_lanes];
  const unsigned lane = running_ % warp_lanes;
  warp.offered[lane] = bits;
  warp.source[lane] = source;
  meet(mask);
  return warp.taken[lane];
}

std::uint64_t FiberBlock::exchange(unsigned mask, std::uint64_t bits, unsigned source) {
  if (source >= warp_lanes || (mask >> source & 1U) == 0) {
    stop("a shuffle reads a lane that is not in its mask");
  }
  return offer(mask, bits, source);
}

unsigned FiberBlock::ballot(unsigned mask, bool predicate) {
  return static_cast<unsigned>(offer(mask, predicate ? 1 : 0, votes));
}

void FiberBlock::report_deadlock() const {
  unsigned at_warp = 0;
  for (unsigned i = 0; i < count_; ++i) {
    at_warp += fibers_[i]->state == State::at_warp_barrier ? 1U : 0U;
  }
  std::fprintf(stderr,
               "cuda_on_host: deadlock: of %u threads %u ended, %u wait for the block, %u for "
               "lanes of their warp\n",
               count_, count_ - live_, at_barrier_, at_warp);
  std::abort();
}

void block_barrier() { FiberBlock::current().wait_for_block(); }
bool block_barrier_and(bool predicate) {
  return FiberBlock::current().wait_for_block_and(predicate);
}
void warp_barrier(unsigned mask, bool ordered) {
  FiberBlock::current().wait_for_warp(mask, ordered);
}
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned source) {
  return FiberBlock::current().exchange(mask, bits, source);
}
unsigned ballot(unsigned mask, bool predicate) {
  return FiberBlock::current().ballot(mask, predicate);
}
unsigned lane_index() {
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  return thread % 32;
}

}  // namespace cuda_on_host
