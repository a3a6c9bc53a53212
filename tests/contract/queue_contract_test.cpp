// The ordering rule of terrace/core/queue.hpp, on every backend.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>
#include <thread>

#include "contract/backend_case.hpp"
#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using testing::HasSubstr;

class QueueContract : public BackendContract {
 protected:
  /// A task that notes that it ran.
  auto note(int what) {
    return [this, what] {
      log_.push_back(what);
      return std::size_t{0};
    };
  }
  static auto failure(const char* text) {
    return [text]() -> Result<std::size_t> { return fail(Errc::device_error, "{}", text); };
  }

  std::vector<int> log_;
};

TEST_P(QueueContract, RunsTheWorkOfAQueueInTheOrderItWasEnqueued) {
  const auto compute = queue("compute");
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(compute->call(Phase::model, note(i)));
  ASSERT_TRUE(compute->drain(patience));
  ASSERT_EQ(log_.size(), 100U);
  EXPECT_TRUE(std::ranges::is_sorted(log_));
}

TEST_P(QueueContract, ADefaultTicketIsDone) {
  const auto compute = queue("compute");
  EXPECT_TRUE(wait(Ticket{}, Duration{}));
  EXPECT_TRUE(poll(Ticket{}).value());
  EXPECT_TRUE(compute->wait_for(Ticket{}));
  EXPECT_TRUE(compute->drain(Duration{}));
}

TEST_P(QueueContract, CopiesEveryExtentOfABatch) {
  const auto offload = queue("offload");
  const Buffer source = host_buffer(4096);
  for (std::size_t i = 0; i < 4096; ++i) source.data()[i] = static_cast<std::byte>(i * 7);
  const Buffer target = host_buffer(4096);
  std::vector<CopyExtent> extents;
  for (std::size_t at = 0; at < 4096; at += 64) {
    extents.push_back({.target = target.data() + at, .source = source.data() + at, .bytes = 64});
  }
  extents.push_back({});  // no bytes: nothing to point to
  const auto ticket = offload->copy(Phase::offload, extents);
  extents.clear();  // the batch is the queue's
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(wait(*ticket, patience));
  EXPECT_TRUE(std::equal(source.data(), source.data() + 4096, target.data()));
  EXPECT_EQ(offload->counters().bytes[static_cast<std::size_t>(Phase::offload)], 4096U);
}

TEST_P(QueueContract, RefusesACopyThroughANullPointer) {
  const auto offload = queue("offload");
  const CopyExtent extent{.bytes = 1};
  const auto ticket = offload->copy(Phase::offload, {&extent, 1});
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(ticket.error().message()), HasSubstr("offload"));
}

TEST_P(QueueContract, StartsWorkAfterWaitForOnlyWhenTheTicketIsDone) {
  const auto first = queue("first");
  const auto second = queue("second");
  Gate gate(has_threads());
  ASSERT_TRUE(first->call(Phase::model, gate.task()));
  ASSERT_TRUE(first->call(Phase::model, note(1)));
  ASSERT_TRUE(second->wait_for(*first->record()));
  ASSERT_TRUE(second->call(Phase::model, note(2)));
  gate.open();
  ASSERT_TRUE(second->drain(patience));
  EXPECT_EQ(log_, (std::vector<int>{1, 2}));
}

TEST_P(QueueContract, StartsWorkBehindWaitForOnlyWhenTheEventIsSet) {
  const auto compute = queue("compute");
  const Event event;
  std::thread other;
  ASSERT_TRUE(compute->call(Phase::model, note(1)));
  // A queue whose work is done at once holds its caller up.
  if (runs_at_once()) other = std::thread([&] { event.set(); });
  ASSERT_TRUE(compute->wait_for(event));
  ASSERT_TRUE(compute->call(Phase::model, [&]() -> Result<std::size_t> {
    if (!event.is_set()) return fail(Errc::device_error, "it began too early");
    log_.push_back(2);
    return std::size_t{0};
  }));
  if (has_threads()) {
    EXPECT_EQ(compute->drain(std::chrono::milliseconds(1)).error().code, Errc::not_ready);
  }
  event.set();
  const Status drained = compute->drain(patience);
  if (other.joinable()) other.join();
  ASSERT_TRUE(drained) << drained.error().message();
  EXPECT_THAT(log_, testing::ElementsAre(1, 2));
}

TEST_P(QueueContract, AnEventThatIsSetHoldsNothingUp) {
  const auto compute = queue("compute");
  const Event event;
  event.set();
  event.set();
  ASSERT_TRUE(compute->wait_for(event));
  ASSERT_TRUE(compute->call(Phase::model, note(1)));
  ASSERT_TRUE(compute->drain(patience));
  EXPECT_THAT(log_, testing::ElementsAre(1));
}

TEST_P(QueueContract, AQueueEndsThoughTheEventItWaitsForIsNeverSet) {
  if (runs_at_once()) GTEST_SKIP() << "its caller waits, until the deadline";
  const Event event;
  auto compute = queue("compute");
  ASSERT_TRUE(compute->wait_for(event));
  ASSERT_TRUE(compute->call(Phase::model, note(1)));
  compute.reset();
  EXPECT_THAT(log_, testing::IsEmpty());
  event.set();  // nobody hears it
}

TEST_P(QueueContract, AnOlderTicketDoesNotWaitForLaterWork) {
  const auto compute = queue("compute");
  const auto early = compute->call(Phase::model, note(1));
  Gate gate(has_threads());
  const auto late = compute->call(Phase::model, gate.task());
  ASSERT_TRUE(wait(*early, patience));
  EXPECT_FALSE(poll(*late).value() && has_threads());
  gate.open();
  EXPECT_TRUE(wait(*late, patience));
}

TEST_P(QueueContract, AWaitThatIsTooShortSaysNotReadyAndTheWorkGoesOn) {
  if (runs_at_once()) GTEST_SKIP() << "work is done before it is waited for";
  const auto compute = queue("compute");
  Gate gate(has_threads());
  const auto ticket = compute->call(Phase::model, gate.task());
  const Status early = wait(*ticket, Duration{});
  ASSERT_FALSE(early);
  EXPECT_EQ(early.error().code, Errc::not_ready);
  EXPECT_THAT(std::string(early.error().message()), HasSubstr("compute"));
  gate.open();
  EXPECT_TRUE(wait(*ticket, patience));
}

TEST_P(QueueContract, PollingComesToAnEnd) {
  const auto compute = queue("compute");
  const auto ticket = compute->call(Phase::model, note(1));
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!poll(*ticket).value()) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_EQ(log_.size(), 1U);
}

TEST_P(QueueContract, AFailurePoisonsEverythingAfterItAndNothingBefore) {
  const auto compute = queue("compute");
  const auto before = compute->call(Phase::model, note(1));
  const auto failed = compute->call(Phase::model, failure("first"));
  const auto after = compute->call(Phase::model, note(2));
  ASSERT_TRUE(compute->call(Phase::model, failure("second")));
  const Status status = compute->drain(patience);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "first");
  EXPECT_TRUE(poll(*before).value());
  EXPECT_EQ(poll(*failed).error().message(), "first");
  EXPECT_EQ(wait(*after, patience).error().message(), "first");
  EXPECT_EQ(log_, std::vector<int>{1});
}

TEST_P(QueueContract, MovesNoByteAfterAFailure) {
  const auto first = queue("first");
  const auto second = queue("second");
  const Buffer source = host_buffer(64);
  const Buffer target = host_buffer(64);
  std::fill_n(source.data(), 64, std::byte{7});
  std::fill_n(target.data(), 64, std::byte{0});
  const CopyExtent extent{target.data(), source.data(), 64};
  ASSERT_TRUE(first->call(Phase::model, failure("broken")));
  ASSERT_TRUE(first->copy(Phase::offload, {&extent, 1}));
  ASSERT_TRUE(second->wait_for(*first->record()));
  ASSERT_TRUE(second->copy(Phase::offload, {&extent, 1}));
  EXPECT_EQ(first->drain(patience).error().message(), "broken");
  EXPECT_EQ(second->drain(patience).error().message(), "broken");
  EXPECT_EQ(target.data()[63], std::byte{0});
}

TEST_P(QueueContract, AQueueThatWaitsForFailedWorkFailsWithIt) {
  const auto first = queue("first");
  const auto second = queue("second");
  const auto third = queue("third");
  ASSERT_TRUE(first->call(Phase::model, failure("broken")));
  ASSERT_TRUE(second->wait_for(*first->record()));
  ASSERT_TRUE(second->call(Phase::model, note(1)));
  ASSERT_TRUE(third->wait_for(*second->record()));
  const Status status = third->drain(patience);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().message(), "broken");
  EXPECT_TRUE(log_.empty());
}

TEST_P(QueueContract, ClearErrorMakesAQueueUsableAndOldTicketsKeepTheirError) {
  const auto compute = queue("compute");
  for (const char* const text : {"first", "second"}) {
    const auto failed = compute->call(Phase::model, failure(text));
    ASSERT_FALSE(compute->drain(patience));
    ASSERT_TRUE(compute->clear_error());
    EXPECT_TRUE(compute->drain(patience));
    EXPECT_EQ(poll(*failed).error().message(), text);
    const auto next = compute->call(Phase::model, note(1));
    EXPECT_TRUE(wait(*next, patience));
  }
  EXPECT_EQ(log_.size(), 2U);
}

TEST_P(QueueContract, ClearErrorIsRefusedWhileWorkIsEnqueued) {
  if (runs_at_once()) GTEST_SKIP() << "no work stays enqueued";
  const auto compute = queue("compute");
  Gate gate(has_threads());
  ASSERT_TRUE(compute->call(Phase::model, gate.task()));
  EXPECT_EQ(compute->clear_error().error().code, Errc::not_ready);
  gate.open();
  ASSERT_TRUE(compute->drain(patience));
  EXPECT_TRUE(compute->clear_error());
}

TEST_P(QueueContract, AFunctionThatThrowsIsAnErrorOfItsTicket) {
  const auto compute = queue("compute");
  ASSERT_TRUE(compute->call(Phase::model, []() -> Result<std::size_t> { throw 1; }));
  const Status status = compute->drain(patience);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::device_error);
}

TEST_P(QueueContract, RefusesToWaitForWorkThatWasNeverEnqueued) {
  const auto first = queue("first");
  const auto second = queue("second");
  const Status status = second->wait_for({first.get(), 17});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::invalid_argument);
  EXPECT_TRUE(second->drain(patience));
}

TEST_P(QueueContract, HostQueuesAndDeviceQueuesWaitForEachOther) {
  const auto compute = queue("compute");
  const auto cluster = backend_->make_host_queue({.name = "cluster"}).value();
  ASSERT_TRUE(compute->call(Phase::model, note(1)));
  ASSERT_TRUE(cluster->wait_for(*compute->record()));
  ASSERT_TRUE(cluster->call(Phase::cluster, note(2)));
  ASSERT_TRUE(compute->wait_for(*cluster->record()));
  ASSERT_TRUE(compute->call(Phase::model, note(3)));
  ASSERT_TRUE(compute->drain(patience));
  EXPECT_EQ(log_, (std::vector<int>{1, 2, 3}));
}

TEST_P(QueueContract, QueuesOfTheBackendAndThoseOfAnEmbedderWaitForEachOther) {
  const auto compute = queue("compute");
  const auto offload = backend_->make_queue({.name = "offload", .lane = "offload"}).value();
  Gate gate(has_threads());
  constexpr int pieces = 16;
  for (int i = 0; i < pieces; i += 2) {
    ASSERT_TRUE(compute->call(Phase::model, note(i)));
    ASSERT_TRUE(offload->wait_for(*compute->record()));
    if (i == 10) {
      ASSERT_TRUE(offload->call(Phase::offload, gate.task()));
    }
    ASSERT_TRUE(offload->call(Phase::offload, note(i + 1)));
    ASSERT_TRUE(compute->wait_for(*offload->record()));
  }
  gate.open();
  ASSERT_TRUE(compute->drain(patience));
  ASSERT_TRUE(offload->drain(patience));
  EXPECT_EQ(log_.size(), std::size_t{pieces});
  EXPECT_TRUE(std::ranges::is_sorted(log_));
}

TEST_P(QueueContract, CountsBytesThatTasksReportByPhase) {
  const auto fetch = queue("fetch");
  ASSERT_TRUE(fetch->call(Phase::fetch, [] { return std::size_t{100}; }));
  ASSERT_TRUE(fetch->call(Phase::fetch, [] { return std::size_t{23}; }));
  ASSERT_TRUE(fetch->call(Phase::attend, [] { return std::size_t{0}; }));
  ASSERT_TRUE(fetch->drain(patience));
  const QueueCounters counters = fetch->counters();
  EXPECT_EQ(counters.bytes[static_cast<std::size_t>(Phase::fetch)], 123U);
  EXPECT_EQ(counters.bytes[static_cast<std::size_t>(Phase::attend)], 0U);
}

TEST_P(QueueContract, DestructionWithPendingWorkEndsEveryWaitForIt) {
  const auto second = queue("second");
  Gate gate(has_threads());
  auto first = queue("first");
  auto third = queue("third");
  ASSERT_TRUE(first->call(Phase::model, gate.task()));
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(first->call(Phase::model, note(i)));
  ASSERT_TRUE(second->wait_for(*first->record()));
  ASSERT_TRUE(second->call(Phase::model, note(10)));
  ASSERT_TRUE(third->wait_for(*second->record()));
  std::thread opener;
  if (has_threads()) opener = std::thread([&] { gate.open(); });
  first.reset();
  if (opener.joinable()) opener.join();
  third.reset();
  // A queue that waited for the pending work continues in any case: the work was run or cancelled.
  const Status status = second->drain(patience);
  if (!status) {
    EXPECT_EQ(status.error().code, Errc::cancelled);
  }
}

TEST_P(QueueContract, TasksDieBeforeTheirTicketIsDone) {
  const auto compute = queue("compute");
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  const auto ticket =
      compute->call(Phase::model, [held = std::move(held)] { return std::size_t{0}; });
  ASSERT_TRUE(wait(*ticket, patience));
  EXPECT_TRUE(watched.expired());
}

/// Random work on four queues with random waits between them; each piece checks that all work it
/// was ordered after has run.
TEST_P(QueueContract, HoldsTheOrderingRuleUnderRandomWork) {
  const std::uint64_t seed = fuzz_seed(20261121);
  const std::uint64_t pieces = std::min<std::uint64_t>(fuzz_steps(), 4000);
  SCOPED_TRACE(replay(seed, pieces));
  Rng rng(seed);
  constexpr std::size_t queue_count = 4;
  std::vector<std::unique_ptr<Queue>> queues;
  for (std::size_t i = 0; i < queue_count; ++i) queues.push_back(queue("queue"));
  using Clock = std::array<std::uint64_t, queue_count>;  // a vector clock
  std::array<Clock, queue_count> ordered{};  // the work that the next piece is ordered after
  std::array<std::atomic<std::uint64_t>, queue_count> run{};
  std::atomic<std::uint64_t> violations{0};
  for (std::uint64_t piece = 0; piece < pieces; ++piece) {
    const std::size_t at = rng.below(queue_count);
    const std::size_t other = rng.below(queue_count);
    if (other != at && rng.below(3) == 0) {
      ASSERT_TRUE(queues[at]->wait_for(*queues[other]->record()));
      for (std::size_t i = 0; i < queue_count; ++i) {
        ordered[at][i] = std::max(ordered[at][i], ordered[other][i]);
      }
    }
    const auto check = [&run, &violations, at, behind = ordered[at]] {
      for (std::size_t i = 0; i < queue_count; ++i) {
        if (run[i].load(std::memory_order_relaxed) < behind[i]) violations.fetch_add(1);
      }
      if (run[at].fetch_add(1, std::memory_order_relaxed) != behind[at]) violations.fetch_add(1);
      return std::size_t{0};
    };
    ASSERT_TRUE(queues[at]->call(Phase::model, check));
    ++ordered[at][at];
  }
  for (const auto& each : queues) ASSERT_TRUE(each->drain(patience));
  EXPECT_EQ(violations.load(), 0U);
  EXPECT_EQ(run[0] + run[1] + run[2] + run[3], pieces);
}

INSTANTIATE_TEST_SUITE_P(Backends, QueueContract, testing::ValuesIn(backend_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace terrace
