#include "stream.hpp"

#include <pthread.h>

#include <chrono>
#include <cstring>
#include <set>
#include <vector>

#include "capture.hpp"
#include "device_state.hpp"
#include "fiber_block.hpp"
#include "memory.hpp"

namespace cuda_on_host {

void Mark::reach() {
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  {
    const std::scoped_lock lock(mutex_);
    reached_ = true;
    time_ = now.count();
  }
  moved_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  moved_.wait(lock, [this] { return reached_; });
}

bool Mark::reached() const {
  const std::scoped_lock lock(mutex_);
  return reached_;
}

double Mark::time() const {
  const std::scoped_lock lock(mutex_);
  return time_;
}

namespace {

std::shared_ptr<Mark> last_mark(cudaEvent_t event) {
  const std::scoped_lock lock(event->mutex);
  return event->last;
}

bool is_captured(cudaEvent_t event) {
  const std::scoped_lock lock(event->mutex);
  return event->captured;
}

struct Streams {
  std::mutex mutex;
  std::set<CUstream_st*> all;
};

Streams& streams() {
  static Streams* const streams = new Streams;  // outlives every thread
  return *streams;
}

/// Counts a launch down to the one that breaks the device.
bool breaks_device() {
  DeviceState& state = device_state();
  std::uint64_t left = state.breaking_launch.load(std::memory_order_relaxed);
  if (left == 0) return false;
  state.breaking_launch.store(left - 1, std::memory_order_relaxed);
  return left == 1;
}

void run_grid(FiberBlock& block, const cudaLaunchConfig_t& config,
              const std::function<void()>& thread) {
  DeviceState& state = device_state();
  if (breaks_device()) {
    state.broken.store(state.breaking_error);
    return;
  }
  const FiberBlock::Shape shape{config.gridDim, config.blockDim, config.dynamicSmemBytes};
  const dim3 grid = config.gridDim;
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t at = state.traits.blocks_descending ? blocks - 1 - i : i;
    const uint3 index{static_cast<unsigned>(at % grid.x),
                      static_cast<unsigned>(at / grid.x % grid.y),
                      static_cast<unsigned>(at / grid.x / grid.y)};
    block.run(shape, index, thread);
  }
}

}  // namespace

void await_rest() {
  const std::scoped_lock lock(streams().mutex);
  for (const CUstream_st* const stream : streams().all) {
    while (stream->accesses_memory()) std::this_thread::yield();
  }
}

void Device::await_idle() {
  const std::scoped_lock lock(streams().mutex);
  for (CUstream_st* const stream : streams().all) stream->synchronize();
}

bool is_default(cudaStream_t stream) { return stream == nullptr || stream == cudaStreamLegacy; }

CUstream_st& stream_of(cudaStream_t stream) {
  if (!is_default(stream)) return *stream;
  static CUstream_st* const legacy = new CUstream_st;  // outlives every user
  return *legacy;
}

cudaError_t launch(const cudaLaunchConfig_t& config, std::function<void()> thread) {
  CUDA_ON_HOST_ENTER("cudaLaunchKernelEx");
  const dim3 grid = config.gridDim;
  const dim3 threads = config.blockDim;
  const unsigned count = threads.x * threads.y * threads.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.y > 65535 || grid.z > 65535 || count == 0 ||
      count > 1024 || config.dynamicSmemBytes > dynamic_shared_bytes_max) {
    return report(cudaErrorInvalidConfiguration);
  }
  device_state().launches.fetch_add(1, std::memory_order_relaxed);
  CUstream_st& stream = stream_of(config.stream);
  stream.push_access(
      [&stream, config, thread = std::move(thread)] { run_grid(stream.block(), config, thread); });
  return cudaSuccess;
}

}  // namespace cuda_on_host

using namespace cuda_on_host;

CUstream_st::CUstream_st() : thread_([this] { serve(); }) {
  // Tests that count the threads of what they test know this name.
  pthread_setname_np(thread_.native_handle(), "cuda_on_host");
  const std::scoped_lock lock(streams().mutex);
  streams().all.insert(this);
}

CUstream_st::~CUstream_st() {
  {
    const std::scoped_lock lock(streams().mutex);
    streams().all.erase(this);
  }
  work_.stop();
  thread_.join();
}

void CUstream_st::push(std::function<void()> work) {
  if (is_capturing(this)) return;  // it goes into the graph
  work_.push(new std::function<void()>(std::move(work)));
}

void CUstream_st::push_access(std::function<void()> access) {
  push([this, access = std::move(access)] {
    accesses_memory_.store(true);
    if (!device_state().is_broken()) access();
    accesses_memory_.store(false);
  });
}

void CUstream_st::synchronize() { work_.wait_until_finished(); }

cuda_on_host::FiberBlock& CUstream_st::block() {
  if (block_ == nullptr) block_ = std::make_unique<FiberBlock>();
  return *block_;
}

void CUstream_st::serve() {
  while (HandOver::Work* const work = work_.pop()) {
    (*work)();
    delete work;
    work_.finish();
  }
  block_.reset();
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned /*flags*/,
                                         int /*priority*/) {
  CUDA_ON_HOST_ENTER("cudaStreamCreateWithPriority");
  *stream = new CUstream_st;
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (const cudaError_t error = check_captures("cudaStreamDestroy"); error != cudaSuccess) {
    return report(error);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  CUDA_ON_HOST_ENTER("cudaStreamSynchronize");
  stream_of(stream).synchronize();
  return report(device_state().check_broken());
}

cudaError_t cudaDeviceSynchronize() {
  CUDA_ON_HOST_ENTER("cudaDeviceSynchronize");
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned /*flags*/) {
  CUDA_ON_HOST_ENTER("cudaStreamWaitEvent");
  const std::shared_ptr<Mark> mark = last_mark(event);
  if (mark == nullptr || device_state().traits.waits_are_ignored) return cudaSuccess;
  stream_of(stream).push([mark] { mark->wait(); });
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  CUDA_ON_HOST_ENTER("cudaEventCreateWithFlags");
  *event = new CUevent_st;
  (*event)->timed = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  CUDA_ON_HOST_ENTER("cudaEventRecord");
  auto mark = std::make_shared<Mark>();
  {
    const std::scoped_lock lock(event->mutex);
    event->last = mark;
    event->captured = is_capturing(stream);
  }
  stream_of(stream).push([mark] { mark->reach(); });
  return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  CUDA_ON_HOST_ENTER("cudaEventQuery");
  if (is_captured(event)) return report(cudaErrorCapturedEvent);
  const std::shared_ptr<Mark> mark = last_mark(event);
  const bool reached = mark == nullptr || mark->reached();
  // Looked at again: what a broken device skipped is not done.
  return report(reached ? device_state().check_broken() : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  CUDA_ON_HOST_ENTER("cudaEventSynchronize");
  if (const std::shared_ptr<Mark> mark = last_mark(event)) mark->wait();
  return report(device_state().check_broken());
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  CUDA_ON_HOST_ENTER("cudaEventElapsedTime");
  const std::shared_ptr<Mark> first = last_mark(begin);
  const std::shared_ptr<Mark> last = last_mark(end);
  if (!begin->timed || !end->timed || first == nullptr || last == nullptr) {
    return report(cudaErrorInvalidResourceHandle);
  }
  if (!first->reached() || !last->reached()) return report(cudaErrorNotReady);
  *milliseconds = static_cast<float>((last->time() - first->time()) * 1e3);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes,
                            cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  CUDA_ON_HOST_ENTER("cudaMemcpyAsync");
  if (crosses_registrations(target, bytes) || crosses_registrations(source, bytes)) {
    return report(cudaErrorInvalidValue);
  }
  stream_of(stream).push_access([=] { std::memcpy(target, source, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemcpyBatchAsync(void* const* targets, const void* const* sources,
                                 const std::size_t* sizes, std::size_t count,
                                 cudaMemcpyAttributes* attributes,
                                 std::size_t* /*attribute_indices*/, std::size_t attribute_count,
                                 cudaStream_t stream) {
  CUDA_ON_HOST_ENTER("cudaMemcpyBatchAsync");
  if (!device_state().traits.batched_copies) return report(cudaErrorNotSupported);
  // The driver refuses the default stream: it must not be the legacy one.
  if (count == 0 || attribute_count == 0 || is_default(stream) ||
      attributes->srcAccessOrder != cudaMemcpySrcAccessOrderStream) {
    return report(cudaErrorInvalidValue);
  }
  struct Copy {
    void* target;
    const void* source;
    std::size_t bytes;
  };
  std::vector<Copy> copies;
  for (std::size_t i = 0; i < count; ++i) {
    if (sizes[i] == 0 || crosses_registrations(targets[i], sizes[i]) ||
        crosses_registrations(sources[i], sizes[i])) {
      return report(cudaErrorInvalidValue);
    }
    copies.push_back({targets[i], sources[i], sizes[i]});
  }
  stream->push_access([copies = std::move(copies)] {
    for (const Copy& copy : copies) std::memcpy(copy.target, copy.source, copy.bytes);
  });
  return cudaSuccess;
}

/// As 12.8 and 12.9 have it; see CUDA_ON_HOST_VERSION.
cudaError_t cudaMemcpyBatchAsync(void** targets, void** sources, std::size_t* sizes,
                                 std::size_t count, cudaMemcpyAttributes* attributes,
                                 std::size_t* attribute_indices, std::size_t attribute_count,
                                 std::size_t* failed, cudaStream_t stream) {
  *failed = SIZE_MAX;  // no copy in particular
  return cudaMemcpyBatchAsync(static_cast<void* const*>(targets),
                              static_cast<const void* const*>(sources), sizes, count, attributes,
                              attribute_indices, attribute_count, stream);
}

cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes, cudaStream_t stream) {
  CUDA_ON_HOST_ENTER("cudaMemsetAsync");
  stream_of(stream).push_access([=] { std::memset(data, value, bytes); });
  return cudaSuccess;
}
