// Streams, events, copies, memory and faults of the stand-in.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "cuda_on_host/control.hpp"
#include "cuda_runtime.h"

namespace cuda_on_host {
namespace {

class Streams : public ::testing::Test {
 protected:
  Streams() {
    for (cudaStream_t* const stream : {&first_, &second_}) {
      EXPECT_EQ(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0), cudaSuccess);
    }
    EXPECT_EQ(cudaEventCreateWithFlags(&event_, 0), cudaSuccess);
  }
  ~Streams() override {
    static_cast<void>(cudaStreamDestroy(first_));
    static_cast<void>(cudaStreamDestroy(second_));
    static_cast<void>(cudaEventDestroy(event_));
  }

  template <typename... Parameters, typename... Arguments>
  static cudaError_t launch_on(cudaStream_t stream, void (*kernel)(Parameters...),
                               Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = 1;
    config.blockDim = 1;
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
  }

  Device device_;
  cudaStream_t first_ = nullptr;
  cudaStream_t second_ = nullptr;
  cudaEvent_t event_ = nullptr;
};

__global__ void wait_until_open(std::atomic<bool>* open) { open->wait(false); }
__global__ void add_one(int* value) { ++*value; }

void open_gate(std::atomic<bool>& gate) {
  gate = true;
  gate.notify_all();
}

TEST_F(Streams, CopiesAreAsynchronousAndEventsSayWhenTheyAreDone) {
  std::atomic<bool> gate{false};
  int source = 7;
  int target = 0;
  ASSERT_EQ(launch_on(first_, wait_until_open, &gate), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(&target, &source, sizeof source, cudaMemcpyDefault, first_),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorNotReady);
  open_gate(gate);
  ASSERT_EQ(cudaEventSynchronize(event_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event_), cudaSuccess);
  EXPECT_EQ(target, 7);
}

TEST_F(Streams, AWaitIsForTheRecordBeforeItAndNotForALaterOne) {
  std::atomic<bool> gate{false};
  int value = 0;
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second_, event_), cudaSuccess);
  ASSERT_EQ(launch_on(first_, wait_until_open, &gate), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_EQ(launch_on(second_, add_one, &value), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(value, 1);
  ASSERT_EQ(cudaStreamWaitEvent(second_, event_), cudaSuccess);
  ASSERT_EQ(launch_on(second_, add_one, &value), cudaSuccess);
  open_gate(gate);
  ASSERT_EQ(cudaStreamSynchronize(second_), cudaSuccess);
  EXPECT_EQ(value, 2);
}

TEST_F(Streams, EventsMeasureTheTimeBetweenThem) {
  cudaEvent_t end = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&end, 0), cudaSuccess);
  int value = 0;
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_EQ(launch_on(first_, add_one, &value), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, first_), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event_, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  static_cast<void>(cudaEventDestroy(end));
}

TEST_F(Streams, ABatchMovesEveryCopyOrIsNotSupported) {
  std::vector<int> source{1, 2, 3};
  std::vector<int> target(3);
  std::vector<void*> targets{&target[2], &target[1], target.data()};
  std::vector<const void*> sources{source.data(), &source[1], &source[2]};
  std::vector<std::size_t> sizes(3, sizeof(int));
  cudaMemcpyAttributes attributes{.srcAccessOrder = cudaMemcpySrcAccessOrderStream, .flags = 0};
  std::size_t first = 0;
  const auto copy = [&] {
    return cudaMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), 3, &attributes,
                                &first, 1, first_);
  };
  ASSERT_EQ(copy(), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(target, (std::vector<int>{3, 2, 1}));
  device_.set({.batched_copies = false});
  EXPECT_EQ(copy(), cudaErrorNotSupported);
  EXPECT_EQ(device_.counts().batch_calls, 1U);
}

TEST_F(Streams, TheDefaultStreamTakesAllWorkButBatches) {
  for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy}) {
    std::vector<int> source{1, 2};
    std::vector<int> target(2);
    int value = 0;
    ASSERT_EQ(
        cudaMemcpyAsync(target.data(), source.data(), 2 * sizeof(int), cudaMemcpyDefault, stream),
        cudaSuccess);
    ASSERT_EQ(launch_on(stream, add_one, &value), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(event_, stream), cudaSuccess);
    ASSERT_EQ(cudaEventSynchronize(event_), cudaSuccess);
    EXPECT_EQ(target, source);
    EXPECT_EQ(value, 1);
    std::vector<void*> targets{target.data(), &target[1]};
    std::vector<const void*> sources{&source[1], source.data()};
    std::vector<std::size_t> sizes(2, sizeof(int));
    cudaMemcpyAttributes attributes{.srcAccessOrder = cudaMemcpySrcAccessOrderStream, .flags = 0};
    std::size_t first = 0;
    EXPECT_EQ(cudaMemcpyBatchAsync(targets.data(), sources.data(), sizes.data(), 2, &attributes,
                                   &first, 1, stream),
              cudaErrorInvalidValue);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  }
}

/// How a call fares that asks a stream, and whether it ends a capture that `mode` began on this
/// thread (of == 0) or on another one.
struct CaptureOutcome {
  cudaError_t query = cudaSuccess;
  cudaError_t capture = cudaSuccess;
  bool operator==(const CaptureOutcome&) const = default;
};

TEST_F(Streams, ACaptureForbidsUnsafeCallsAsItsModeAndTheThreadsSay) {
  const auto query_during = [&](cudaStreamCaptureMode mode, bool on_other_thread,
                                cudaStreamCaptureMode thread_mode) {
    CaptureOutcome outcome;
    const auto query = [&] {
      cudaStreamCaptureMode exchanged = thread_mode;
      EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&exchanged), cudaSuccess);
      outcome.query = cudaEventQuery(event_);
      EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&exchanged), cudaSuccess);
      EXPECT_EQ(exchanged, thread_mode);
    };
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(first_, mode), cudaSuccess);
    on_other_thread ? std::thread(query).join() : query();
    outcome.capture = cudaStreamEndCapture(first_, &graph);
    static_cast<void>(cudaGraphDestroy(graph));
    static_cast<void>(cudaGetLastError());
    return outcome;
  };
  constexpr CaptureOutcome fine{};
  constexpr CaptureOutcome forbidden{cudaErrorStreamCaptureUnsupported,
                                     cudaErrorStreamCaptureInvalidated};
  constexpr auto global = cudaStreamCaptureModeGlobal;
  constexpr auto thread_local_mode = cudaStreamCaptureModeThreadLocal;
  constexpr auto relaxed = cudaStreamCaptureModeRelaxed;
  EXPECT_EQ(query_during(global, true, global), forbidden);
  EXPECT_EQ(query_during(global, true, thread_local_mode), fine);
  EXPECT_EQ(query_during(global, true, relaxed), fine);
  EXPECT_EQ(query_during(global, false, thread_local_mode), forbidden);
  EXPECT_EQ(query_during(global, false, relaxed), fine);
  EXPECT_EQ(query_during(thread_local_mode, true, global), fine);
  EXPECT_EQ(query_during(thread_local_mode, false, global), forbidden);
  EXPECT_EQ(query_during(relaxed, false, global), fine);
}

TEST_F(Streams, AStreamThatIsCapturedDoesNoWork) {
  int value = 0;
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(first_, cudaStreamCaptureModeGlobal), cudaSuccess);
  ASSERT_EQ(launch_on(first_, add_one, &value), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event_, first_), cudaSuccess);
  ASSERT_EQ(cudaStreamEndCapture(first_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  EXPECT_EQ(value, 0);
  EXPECT_EQ(cudaEventQuery(event_), cudaErrorCapturedEvent);
}

TEST_F(Streams, MemoryHasALimit) {
  device_.set({.memory_bytes = 1000});
  void* first = nullptr;
  void* second = nullptr;
  ASSERT_EQ(cudaMalloc(&first, 600), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&second, 600), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFree(first), cudaSuccess);
  EXPECT_EQ(cudaFree(first), cudaErrorInvalidValue);
}

TEST_F(Streams, LockedMemoryHasALimitAndNoCopyMayLeaveItHalfWay) {
  device_.set({.lockable_bytes = 4096});
  std::vector<std::byte> memory(8192);
  std::vector<std::byte> other(8192);
  ASSERT_EQ(cudaHostRegister(memory.data(), 4096, 0), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(memory.data() + 4096, 1, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(device_.counts().registered_bytes, 4096U);
  const auto copy = [&](std::size_t begin, std::size_t bytes) {
    return cudaMemcpyAsync(other.data(), memory.data() + begin, bytes, cudaMemcpyDefault, first_);
  };
  EXPECT_EQ(copy(100, 3996), cudaSuccess);
  EXPECT_EQ(copy(100, 3997), cudaErrorInvalidValue);
  EXPECT_EQ(copy(4096, 4096), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(first_), cudaSuccess);
  ASSERT_EQ(cudaHostUnregister(memory.data()), cudaSuccess);
  EXPECT_EQ(cudaHostUnregister(memory.data()), cudaErrorHostMemoryNotRegistered);
}

TEST_F(Streams, FailsTheNthCallMadeToOrder) {
  device_.fail("cudaMalloc", {.nth = 2, .error = cudaErrorMemoryAllocation});
  void* data[3] = {};
  EXPECT_EQ(cudaMalloc(&data[0], 8), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&data[1], 8), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&data[2], 8), cudaSuccess);
  EXPECT_EQ(cudaFree(data[0]), cudaSuccess);
  EXPECT_EQ(cudaFree(data[2]), cudaSuccess);
}

TEST_F(Streams, ABrokenDeviceFailsEverythingAndLetsNoCallWait) {
  device_.break_at_launch(2);
  int value = 0;
  ASSERT_EQ(launch_on(first_, add_one, &value), cudaSuccess);
  ASSERT_EQ(launch_on(first_, add_one, &value), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(first_), cudaErrorIllegalAddress);
  EXPECT_EQ(value, 1);
  EXPECT_EQ(launch_on(first_, add_one, &value), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaEventRecord(event_, first_), cudaErrorIllegalAddress);
}

TEST_F(Streams, WithoutADriverOrADeviceEveryCallSaysSo) {
  int count = 0;
  void* data = nullptr;
  device_.set({.device_count = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  device_.set({.driver = false});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  EXPECT_EQ(cudaMalloc(&data, 8), cudaErrorInsufficientDriver);
}

}  // namespace
}  // namespace cuda_on_host
