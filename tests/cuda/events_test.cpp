// The events by which queues of the backend know how far their streams are, on the stand-in.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "cuda_on_host/control.hpp"
#include "gate_kernel.hpp"
#include "terrace/offload/cuda/cuda_backend.hpp"

namespace terrace::offload {
namespace {

using terrace::testing::GateKernel;

constexpr Duration patience = std::chrono::seconds(60);

/// A point that another thread comes to.
class Point {
 public:
  void reach() { reached_ = true; }
  void await() const {
    while (!reached_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> reached_{false};
};

/// Notes that a piece of a queue is known to be done, before the queue forgets the piece.
class DoneNote final : public WorkObserver {
 public:
  explicit DoneNote(std::string_view queue) : queue_(queue) {}
  void on_work(const WorkRecord& record) override {
    if (record.queue == queue_) noted_.reach();
  }
  void await() const { noted_.await(); }

 private:
  std::string_view queue_;
  Point noted_;
};

TEST(Events, AreRecordedOnlyWhereSomebodyWaits) {
  cuda_on_host::Device device;
  const auto backend = CudaBackend::create({}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  const auto offload = backend->make_queue({.name = "offload"}).value();
  GateKernel gate;
  ASSERT_TRUE(gate.enqueue(*compute));
  const std::uint64_t before = device.counts().event_records;
  const auto records = [&] { return device.counts().event_records - before; };
  const auto add_work = [&] {
    return compute->launch(Phase::model, [] { return std::size_t{0}; }).value();
  };
  const Ticket first = add_work();
  const Ticket second = add_work();
  EXPECT_EQ(records(), 0U);
  EXPECT_EQ(compute->record().value().number, second.number);
  EXPECT_EQ(records(), 1U);
  ASSERT_TRUE(offload->wait_for(first));
  EXPECT_EQ(records(), 1U) << "the mark after it is its";
  const Ticket third = add_work();
  EXPECT_FALSE(poll(third).value());
  EXPECT_EQ(records(), 2U);
  EXPECT_FALSE(poll(third).value());
  EXPECT_EQ(records(), 2U);
  gate.open();
  ASSERT_TRUE(wait(third, patience));
  EXPECT_TRUE(poll(first).value());
  ASSERT_TRUE(offload->drain(patience));
  EXPECT_EQ(compute->counters().pieces, 4U);
}

TEST(Events, SayWhenAThreadThatSleepsIsToGoOn) {
  cuda_on_host::Device device;
  const auto backend = CudaBackend::create({.spin = Duration{}}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  for (int i = 0; i < 100; ++i) {
    GateKernel gate;
    const Ticket first = gate.enqueue(*compute).value();
    const Ticket second = compute->launch(Phase::model, [] { return std::size_t{0}; }).value();
    std::thread waits_for_first([&] { EXPECT_TRUE(wait(first, patience)); });
    std::thread waits_for_second([&] { EXPECT_TRUE(wait(second, patience)); });
    gate.open();
    waits_for_first.join();
    waits_for_second.join();
  }
}

TEST(Events, NobodyAsksForWhileNobodyWaits) {
  cuda_on_host::Device device;
  const auto backend = CudaBackend::create({}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  const std::uint64_t before = device.counts().event_queries;
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(compute->launch(Phase::model, [] { return std::size_t{0}; }));
  }
  EXPECT_EQ(device.counts().event_queries, before);
  const Ticket last = compute->record().value();
  device.await_idle();
  ASSERT_TRUE(wait(last, patience));
  EXPECT_EQ(device.counts().event_queries, before + 1);
}

// Events of a piece went back to their pool while the piece was still to be found: another queue
// recorded them after its own work, and a wait for the piece was one for that work, too.
TEST(Events, OfAPieceThatIsWaitedForAreNobodyElses) {
  cuda_on_host::Device device;
  DoneNote awaited_done("awaited");
  const auto backend = CudaBackend::create({.observer = &awaited_done}).value();
  const auto awaited = backend->make_queue({.name = "awaited"}).value();
  const auto foreign = backend->make_queue({.name = "foreign"}).value();
  const auto waits = backend->make_queue({.name = "waits"}).value();
  GateKernel gate;
  GateKernel foreign_gate;
  Point asked;
  Point waited_for;
  device.at_next("cudaEventQuery", [&] {
    asked.reach();
    waited_for.await();
  });
  const Ticket ticket = gate.enqueue(*awaited).value();
  asked.await();
  gate.open();
  device.await_idle();
  ASSERT_TRUE(foreign_gate.enqueue(*foreign));
  device.at_next("cudaStreamWaitEvent", [&] {
    waited_for.reach();  // the thread that asked learns that the piece is done
    awaited_done.await();
    constexpr int tries = 200;
    for (int i = 0; i < tries; ++i) {
      ASSERT_TRUE(foreign->launch(Phase::model, [] { return std::size_t{0}; }));
      std::this_thread::yield();
    }
  });
  ASSERT_TRUE(waits->wait_for(ticket));
  const Status done = waits->drain(std::chrono::seconds(5));
  EXPECT_TRUE(done) << done.error().message();
  foreign_gate.open();
  for (Queue* const queue : {awaited.get(), foreign.get(), waits.get()}) {
    EXPECT_TRUE(queue->drain(patience));
  }
}

}  // namespace
}  // namespace terrace::offload
