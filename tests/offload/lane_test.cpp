// Queues that share a thread: each keeps its order, its failures and its end.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <memory>
#include <vector>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

constexpr Duration patience = std::chrono::seconds(60);

std::size_t threads_of_process() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<std::size_t>(std::distance(all, std::filesystem::directory_iterator()));
}

/// A piece of work that stands still until it is opened.
class Gate {
 public:
  auto work() {
    return [this] {
      open_.wait(false);
      return std::size_t{0};
    };
  }
  void open() {
    open_ = true;
    open_.notify_all();
  }

 private:
  std::atomic<bool> open_{false};
};

class LaneTest : public ::testing::Test {
 protected:
  std::unique_ptr<Queue> queue(const char* lane) {
    return backend_->make_queue({.name = "queue", .lane = lane}).value();
  }
  static auto nothing() {
    return [] { return std::size_t{0}; };
  }

  std::unique_ptr<Backend> backend_ = HostBackend::create({}).value();
};

TEST_F(LaneTest, AThousandQueuesTakeOneThread) {
  std::vector<std::unique_ptr<Queue>> queues;
  queues.push_back(queue("copies"));
  const std::size_t with_one = threads_of_process();
  for (int i = 1; i < 1000; ++i) queues.push_back(queue("copies"));
  EXPECT_EQ(threads_of_process(), with_one);
  std::atomic<int> ran{0};
  for (const auto& each : queues) {
    ASSERT_TRUE(each->call(Phase::model, [&] {
      ++ran;
      return std::size_t{0};
    }));
  }
  for (const auto& each : queues) ASSERT_TRUE(each->drain(patience));
  EXPECT_EQ(ran, 1000);
}

TEST_F(LaneTest, AQueueThatWaitsHoldsUpNoOther) {
  const auto compute = backend_->make_queue({.name = "compute"}).value();
  const auto waits = queue("copies");
  const auto goes_on = queue("copies");
  Gate gate;
  const Ticket held = compute->call(Phase::model, gate.work()).value();
  ASSERT_TRUE(waits->wait_for(held));
  const Ticket behind = waits->call(Phase::model, nothing()).value();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(goes_on->call(Phase::model, nothing()));
  EXPECT_TRUE(goes_on->drain(patience));
  EXPECT_FALSE(*waits->poll(behind));
  gate.open();
  EXPECT_TRUE(waits->drain(patience));
  EXPECT_GT(waits->counters().waited, Duration{});
}

TEST_F(LaneTest, AFailureOfOneQueueFailsNoOther) {
  const auto fails = queue("copies");
  const auto goes_on = queue("copies");
  ASSERT_TRUE(fails->call(Phase::model, []() -> Result<std::size_t> {
    return fail(Errc::io_error, "a planted fault");
  }));
  const Ticket skipped = fails->call(Phase::model, nothing()).value();
  const Ticket ran = goes_on->call(Phase::model, nothing()).value();
  EXPECT_EQ(wait(skipped, patience).error().code, Errc::io_error);
  EXPECT_TRUE(wait(ran, patience));
  EXPECT_TRUE(fails->clear_error());
}

TEST_F(LaneTest, TheEndOfAWaitingQueueEndsNoOther) {
  const auto compute = backend_->make_queue({.name = "compute"}).value();
  auto ends = queue("copies");
  const auto goes_on = queue("copies");
  Gate gate;
  const Ticket held = compute->call(Phase::model, gate.work()).value();
  ASSERT_TRUE(ends->wait_for(held));
  const Ticket cancelled = ends->call(Phase::model, nothing()).value();
  ASSERT_TRUE(goes_on->wait_for(cancelled));
  const Ticket behind = goes_on->call(Phase::model, nothing()).value();
  ends.reset();
  EXPECT_EQ(wait(behind, patience).error().code, Errc::cancelled);
  gate.open();
  EXPECT_TRUE(compute->drain(patience));
}

TEST_F(LaneTest, AQueueEndsThoughTheLaneIsBusy) {
  const auto busy = queue("copies");
  auto ends = queue("copies");
  Gate gate;
  ASSERT_TRUE(busy->call(Phase::model, gate.work()));
  const Ticket cancelled = ends->call(Phase::model, nothing()).value();
  const auto waits = backend_->make_queue({.name = "waits"}).value();
  ASSERT_TRUE(waits->wait_for(cancelled));
  const Ticket behind = waits->call(Phase::model, nothing()).value();
  ends.reset();
  EXPECT_EQ(wait(behind, patience).error().code, Errc::cancelled);
  gate.open();
  EXPECT_TRUE(busy->drain(patience));
}

TEST_F(LaneTest, AQueueWithoutALaneHasAThreadOfItsOwn) {
  const auto alone = queue("");
  const std::size_t with_one = threads_of_process();
  const auto other = queue("");
  const auto third = queue("");
  EXPECT_EQ(threads_of_process(), with_one + 2);
}

/// Random work on random queues of few lanes: each piece checks that all before it in its queue,
/// and all that its queue was told to wait for, is done.
class RandomWork {
 public:
  RandomWork(Backend& backend, Rng& rng) : backend_(backend), rng_(rng) {
    for (int i = 0; i < 12; ++i) queues_.push_back(open());
  }

  void step() {
    Line& line = queues_[rng_.below(queues_.size())];
    switch (rng_.below(8)) {
      case 0:
        ASSERT_TRUE(line.queue->drain(patience));
        line = open();
        return;
      case 1:
      case 2:
        wait_for_another(line);
        return;
      case 3:
        ASSERT_TRUE(line.queue->drain(patience));
        return;
      default:
        enqueue(line);
    }
  }

  void finish() {
    for (Line& line : queues_) ASSERT_TRUE(line.queue->drain(patience));
    EXPECT_EQ(faults_, 0);
  }

 private:
  struct Line {
    std::unique_ptr<Queue> queue;
    std::shared_ptr<std::atomic<std::uint64_t>> done;  ///< pieces that ran
    std::uint64_t enqueued = 0;
    std::vector<std::pair<std::shared_ptr<std::atomic<std::uint64_t>>, std::uint64_t>> awaited;
  };

  Line open() {
    constexpr const char* lanes[] = {"a", "b", ""};
    return {.queue = backend_.make_queue({.name = "queue", .lane = lanes[rng_.below(3)]}).value(),
            .done = std::make_shared<std::atomic<std::uint64_t>>(0)};
  }

  void enqueue(Line& line) {
    const auto ran = [this, done = line.done, number = line.enqueued, awaited = line.awaited] {
      if (done->load() != number) ++faults_;
      for (const auto& [other, count] : awaited) {
        if (other->load() < count) ++faults_;
      }
      done->store(number + 1);
      return std::size_t{0};
    };
    ASSERT_TRUE(line.queue->call(Phase::model, ran));
    ++line.enqueued;
    if (line.awaited.size() > 4) line.awaited.clear();
  }

  void wait_for_another(Line& line) {
    const Line& other = queues_[rng_.below(queues_.size())];
    const Ticket ticket = other.queue->record().value();
    ASSERT_TRUE(line.queue->wait_for(ticket));
    line.awaited.emplace_back(other.done, other.enqueued);
  }

  Backend& backend_;
  Rng& rng_;
  std::deque<Line> queues_;
  std::atomic<int> faults_{0};
};

TEST_F(LaneTest, KeepsOrdersAndWaitsOfRandomWork) {
  const std::uint64_t seed = fuzz_seed(1);
  const std::uint64_t steps = fuzz_steps();
  constexpr std::uint64_t steps_a_life = 500;
  for (std::uint64_t life = 0; life * steps_a_life < steps; ++life) {
    SCOPED_TRACE(replay(seed, life));
    Rng rng(seed, {life});
    const auto backend = HostBackend::create({.spin = Duration{}}).value();
    RandomWork work(*backend, rng);
    for (std::uint64_t i = 0; i < steps_a_life; ++i) {
      work.step();
      if (HasFatalFailure()) return;
    }
    work.finish();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace terrace::offload
