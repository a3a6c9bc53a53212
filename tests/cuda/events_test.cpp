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

// Events of a piece went back to their pool while the piece was still to be found: another queue
// recorded them after its own work, and whoever waited for the piece waited for that work, too.
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
