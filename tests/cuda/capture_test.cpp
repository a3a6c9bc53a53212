// Work of the backend while the embedder captures a stream of its own into a graph, on the
// stand-in: the work goes on, and the capture stays valid.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <thread>

#include "cuda_on_host/control.hpp"
#include "gate_kernel.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"

namespace terrace::offload {
namespace {

using terrace::testing::GateKernel;

constexpr Duration patience = std::chrono::seconds(60);

class Capture : public ::testing::Test {
 protected:
  Capture() {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  ~Capture() override { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

  void begin(cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, mode), cudaSuccess);
  }
  void expect_valid_end() {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }

  /// Lets threads of the backend ask the device a few times.
  void await_queries() {
    const std::uint64_t before = device_.counts().event_queries;
    while (device_.counts().event_queries < before + 3) std::this_thread::yield();
  }

  cuda_on_host::Device device_;
  std::unique_ptr<Backend> backend_ = CudaBackend::create({}).value();
  cudaStream_t stream_ = nullptr;
  GateKernel gate_;
};

TEST_F(Capture, StaysValidWhileTheBackendAsksForTheEndOfItsWork) {
  const auto queue = backend_->make_queue({.name = "queue"}).value();
  const Ticket ticket = gate_.enqueue(*queue).value();
  begin();
  const Result<bool> polled = poll(ticket);
  ASSERT_TRUE(polled) << polled.error().message();
  EXPECT_FALSE(*polled);
  Status waited;
  std::thread waits([&] { waited = wait(ticket, patience); });
  await_queries();
  gate_.open();
  waits.join();
  EXPECT_TRUE(waited) << waited.error().message();
  expect_valid_end();
}

TEST_F(Capture, StaysValidWhileMemoryAndQueuesComeAndGo) {
  const auto come_and_go = [&] {
    for (const Tier tier : {Tier::device, Tier::host}) {
      const Result<Buffer> memory =
          backend_->allocate({.bytes = std::size_t{64} << 20, .tier = tier});
      EXPECT_TRUE(memory) << memory.error().message();
    }
    const auto queue = backend_->make_queue({.name = "queue"});
    EXPECT_TRUE(queue) << queue.error().message();
  };
  const std::uint64_t before = device_.counts().allocations;
  begin();
  come_and_go();
  std::thread(come_and_go).join();
  EXPECT_GT(device_.counts().allocations, before);
  expect_valid_end();
}

TEST_F(Capture, StaysValidWhileABackendComesAndGoes) {
  begin();
  backend_.reset();
  backend_ = CudaBackend::create({}).value();
  expect_valid_end();
}

TEST_F(Capture, FindsTheModeOfTheCallingThreadAsItWas) {
  const auto queue = backend_->make_queue({.name = "queue"}).value();
  gate_.open();
  ASSERT_TRUE(wait(gate_.enqueue(*queue).value(), patience));
  auto mode = cudaStreamCaptureModeThreadLocal;
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeGlobal);
  ASSERT_TRUE(wait(gate_.enqueue(*queue).value(), patience));
  ASSERT_EQ(cudaThreadExchangeStreamCaptureMode(&mode), cudaSuccess);
  EXPECT_EQ(mode, cudaStreamCaptureModeThreadLocal);
}

}  // namespace
}  // namespace terrace::offload
