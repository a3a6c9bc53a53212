// Queues of backend cuda and the threads that put work on their streams: streams of an embedder,
// and lanes. On the stand-in. The ordering rule is the contract suite's (CudaWrappedStreams).
#include "terrace/offload/cuda/wrap_queue.hpp"

#include <cuda_runtime.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "cuda_on_host/control.hpp"
#include "offload/product_threads.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"
#include "terrace/offload/cuda/enqueue.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

using std::chrono::milliseconds;
using terrace::testing::threads_named;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Duration patience = std::chrono::seconds(60);

/// A host function that stands still until it is opened.
class Gate {
 public:
  ~Gate() { open(); }
  void open() {
    open_ = true;
    open_.notify_all();
  }
  auto work() {
    return [this] {
      open_.wait(false);
      return std::size_t{0};
    };
  }

 private:
  std::atomic<bool> open_{false};
};

class WrapQueue : public ::testing::Test {
 protected:
  WrapQueue() {
    EXPECT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
  }
  ~WrapQueue() override { EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess); }

  std::unique_ptr<Queue> wrap(Duration wait_timeout = patience) {
    return wrap(stream_, wait_timeout);
  }
  std::unique_ptr<Queue> wrap(cudaStream_t stream, Duration wait_timeout = patience) {
    return wrap_queue(*backend_, stream, {.name = "own", .wait_timeout = wait_timeout}).value();
  }
  Buffer bytes(std::byte value) {
    Buffer buffer = backend_->allocate({.bytes = 256, .tier = Tier::host}).value();
    std::fill_n(buffer.data(), buffer.bytes(), value);
    return buffer;
  }
  static Result<Ticket> copy(Queue& queue, const Buffer& to, const Buffer& from) {
    const CopyExtent extent{to.data(), from.data(), to.bytes()};
    return queue.copy(Phase::update, {&extent, 1});
  }
  /// Work that an embedder puts on its stream by itself.
  void copy_on_stream(const Buffer& to, const Buffer& from) {
    EXPECT_EQ(cudaMemcpyAsync(to.data(), from.data(), to.bytes(), cudaMemcpyDefault, stream_),
              cudaSuccess);
  }

  cuda_on_host::Device device_;
  std::unique_ptr<Backend> backend_ = CudaBackend::create({}).value();
  cudaStream_t stream_ = nullptr;
};

TEST_F(WrapQueue, WorkOfTheQueueStandsBetweenThatOfTheEmbedder) {
  const auto own = wrap();
  const Buffer first = bytes(std::byte{7});
  const Buffer second = bytes(std::byte{0});
  const Buffer third = bytes(std::byte{0});
  const Buffer fourth = bytes(std::byte{0});
  const std::uint64_t waits = device_.counts().synchronizations;
  copy_on_stream(second, first);
  ASSERT_TRUE(copy(*own, third, second));
  ASSERT_TRUE(enqueue_kernels(*own, Phase::model, [&](const kernels::cuda::Launch& launch) {
    EXPECT_EQ(launch.stream, stream_);
    return Status{};
  }));
  copy_on_stream(fourth, third);
  EXPECT_EQ(device_.counts().synchronizations, waits);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(fourth.data()[255], std::byte{7});
}

TEST_F(WrapQueue, ItsEndLeavesTheStreamToTheEmbedder) {
  const Buffer source = bytes(std::byte{7});
  const Buffer target = bytes(std::byte{0});
  auto own = wrap();
  ASSERT_TRUE(copy(*own, target, source));
  own.reset();
  EXPECT_EQ(target.data()[0], std::byte{7}) << "its own work is done";
  std::fill_n(source.data(), source.bytes(), std::byte{8});
  copy_on_stream(target, source);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(target.data()[0], std::byte{8});
}

// A driver takes no batch of copies on the default stream, which is PyTorch's current one.
TEST_F(WrapQueue, CopiesOfABatchGoOneByOneOnTheDefaultStream) {
  for (const cudaStream_t stream : {cudaStream_t{}, cudaStreamLegacy}) {
    const auto own = wrap(stream);
    const Buffer source = bytes(std::byte{7});
    const Buffer target = bytes(std::byte{0});
    const CopyExtent halves[] = {{target.data(), source.data(), 128},
                                 {target.data() + 128, source.data() + 128, 128}};
    const cuda_on_host::DeviceCounts before = device_.counts();
    ASSERT_TRUE(own->copy(Phase::update, halves));
    const Status done = own->drain(patience);
    ASSERT_TRUE(done) << done.error().message();
    EXPECT_EQ(target.data()[0], std::byte{7});
    EXPECT_EQ(target.data()[255], std::byte{7});
    EXPECT_EQ(device_.counts().batch_calls, before.batch_calls);
    EXPECT_EQ(device_.counts().copy_calls - before.copy_calls, 2U);
  }
}

TEST_F(WrapQueue, TakesNoThread) {
  const auto own = wrap();
  const Buffer source = bytes(std::byte{7});
  const Buffer target = bytes(std::byte{0});
  ASSERT_TRUE(copy(*own, target, source));
  std::thread::id ran_on;
  ASSERT_TRUE(own->call(Phase::model, [&] {
    EXPECT_EQ(target.data()[0], std::byte{7}) << "the stream has done what was before";
    ran_on = std::this_thread::get_id();
    return std::size_t{0};
  }));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(threads_named("own"), 0U);
}

TEST_F(WrapQueue, WaitsForHostWorkOnTheCallingThreadAtMostItsTimeout) {
  const auto own = wrap(milliseconds(1));
  const auto cluster = backend_->make_host_queue({.name = "cluster"}).value();
  const auto upload = backend_->make_queue({.name = "upload"}).value();
  Gate gate;
  const Ticket held = cluster->call(Phase::cluster, gate.work()).value();
  ASSERT_TRUE(upload->wait_for(held));
  const Ticket behind = upload->record().value();
  for (const Ticket ticket : {held, behind}) {
    const Status late = own->wait_for(ticket);
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code, Errc::not_ready);
    EXPECT_THAT(std::string(late.error().message()),
                AllOf(HasSubstr("own"), HasSubstr(std::string(ticket.queue->name()))));
  }
  gate.open();
  EXPECT_TRUE(upload->drain(patience));
  EXPECT_TRUE(own->wait_for(behind));
  EXPECT_TRUE(own->drain(patience));
}

TEST_F(WrapQueue, GivesTheCallingThreadItsDeviceBack) {
  backend_.reset();  // its threads ask the device
  device_.set({.device_count = 2});
  backend_ = CudaBackend::create({}).value();
  const auto own = wrap();
  const Buffer source = bytes(std::byte{7});
  const Buffer target = bytes(std::byte{0});
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_TRUE(copy(*own, target, source));
  const auto other = backend_->make_queue({.name = "other"}).value();
  ASSERT_TRUE(copy(*other, target, source));
  const Buffer large = backend_->allocate({.bytes = std::size_t{64} << 20}).value();
  int now = -1;
  ASSERT_EQ(cudaGetDevice(&now), cudaSuccess);
  EXPECT_EQ(now, 1);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  EXPECT_TRUE(own->drain(patience));
  EXPECT_TRUE(other->drain(patience));
}

TEST_F(WrapQueue, SaysWhichBackendsHaveNoStreams) {
  const auto host = HostBackend::create({}).value();
  const auto refused = wrap_queue(*host, stream_, {.name = "own"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(refused.error().message()),
              AllOf(HasSubstr("host"), HasSubstr("make_caller_queue")));
}

TEST_F(WrapQueue, QueuesOfTheBackendTellTheDeviceOnTheCallingThread) {
  const auto queue = backend_->make_queue({.name = "queue"}).value();
  std::thread::id told_by;
  ASSERT_TRUE(enqueue_kernels(*queue, Phase::model, [&](const kernels::cuda::Launch& /*launch*/) {
    told_by = std::this_thread::get_id();
    return Status{};
  }));
  EXPECT_EQ(told_by, std::this_thread::get_id());
}

TEST_F(WrapQueue, AHostFunctionOfAQueueOfTheBackendHoldsNoCallerUp) {
  const auto queue = backend_->make_queue({.name = "queue"}).value();
  const Buffer source = bytes(std::byte{7});
  const Buffer target = bytes(std::byte{0});
  Gate gate;
  ASSERT_TRUE(queue->call(Phase::model, gate.work()));
  const Ticket ticket = copy(*queue, target, source).value();
  EXPECT_FALSE(queue->poll(ticket).value());
  gate.open();
  ASSERT_TRUE(wait(ticket, patience));
  EXPECT_EQ(target.data()[0], std::byte{7});
}

TEST_F(WrapQueue, ManyQueuesOfALaneTakeOneThread) {
  std::vector<std::unique_ptr<Queue>> queues;
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) {
    queues.push_back(backend_->make_queue({.name = "queue", .lane = "copies"}).value());
    ASSERT_TRUE(queues.back()->call(Phase::offload, [&] {
      ++ran;
      return std::size_t{0};
    }));
  }
  EXPECT_EQ(threads_named("copies"), 1U);
  for (const auto& each : queues) ASSERT_TRUE(each->drain(patience));
  EXPECT_EQ(ran, 100);
}

TEST_F(WrapQueue, AQueueThatWaitsForHostWorkHoldsUpNoOtherOfItsLane) {
  const auto cluster = backend_->make_host_queue({.name = "cluster"}).value();
  const auto waits = backend_->make_queue({.name = "waits", .lane = "copies"}).value();
  const auto follows = backend_->make_queue({.name = "follows", .lane = "copies"}).value();
  const auto goes_on = backend_->make_queue({.name = "goes on", .lane = "copies"}).value();
  Gate gate;
  ASSERT_TRUE(waits->wait_for(cluster->call(Phase::cluster, gate.work()).value()));
  ASSERT_TRUE(follows->wait_for(waits->record().value()));
  const Ticket behind = follows->call(Phase::offload, [] { return std::size_t{0}; }).value();
  ASSERT_TRUE(goes_on->call(Phase::offload, [] { return std::size_t{0}; }));
  EXPECT_TRUE(goes_on->drain(patience));
  EXPECT_FALSE(follows->poll(behind).value());
  gate.open();
  EXPECT_TRUE(follows->drain(patience));
}

}  // namespace
}  // namespace terrace::offload
