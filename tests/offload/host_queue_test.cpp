// Behaviour of the host backend's threads alone: a link's time, a full ring, standing still.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

using std::chrono::milliseconds;
constexpr Duration patience = std::chrono::seconds(60);

TimePoint now() { return std::chrono::steady_clock::now(); }

Duration busy(const Queue& queue, Phase phase) {
  return queue.counters().busy[static_cast<std::size_t>(phase)];
}

Status copy_and_wait(Queue& queue, Phase phase, std::vector<std::byte>& bytes) {
  std::vector<std::byte> target(bytes.size());
  const CopyExtent extent{.target = target.data(), .source = bytes.data(), .bytes = bytes.size()};
  TERRACE_ASSIGN(const Ticket ticket, queue.copy(phase, {&extent, 1}));
  return wait(ticket, patience);
}

TEST(HostQueueLink, ATransferTakesLatencyAndBytesOverBandwidth) {
  const auto backend =
      HostBackend::create({.link = {.bandwidth_bytes_per_second = 1e6, .latency = milliseconds(5)}})
          .value();
  const auto offload = backend->make_queue({.name = "offload"}).value();
  std::vector<std::byte> bytes(20'000);  // 20 ms
  const TimePoint began = now();
  ASSERT_TRUE(copy_and_wait(*offload, Phase::offload, bytes));
  EXPECT_GE(now() - began, milliseconds(25));
  EXPECT_GE(busy(*offload, Phase::offload), milliseconds(25));
}

TEST(HostQueueLink, TransfersOfTwoQueuesInOneDirectionTakeTurns) {
  const auto backend = HostBackend::create({.link = {.bandwidth_bytes_per_second = 1e6}}).value();
  const auto fetch = backend->make_queue({.name = "fetch"}).value();
  const auto refill = backend->make_queue({.name = "refill"}).value();
  const auto moved = [] { return std::size_t{15'000}; };  // 15 ms each
  const TimePoint began = now();
  ASSERT_TRUE(fetch->call(Phase::fetch, moved));
  ASSERT_TRUE(refill->call(Phase::refill, moved));
  ASSERT_TRUE(fetch->drain(patience));
  ASSERT_TRUE(refill->drain(patience));
  EXPECT_GE(now() - began, milliseconds(30));
}

TEST(HostQueueLink, ComputeAndHostQueuesDoNotPay) {
  // A link so slow that paying once would be seen as a timeout.
  const auto backend = HostBackend::create({.link = {.bandwidth_bytes_per_second = 1}}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  const auto cluster = backend->make_host_queue({.name = "cluster"}).value();
  std::vector<std::byte> bytes(1000);
  EXPECT_TRUE(copy_and_wait(*compute, Phase::update, bytes));
  EXPECT_TRUE(copy_and_wait(*cluster, Phase::index, bytes));
}

TEST(HostQueueLink, DestructionDoesNotSitOutASlowTransfer) {
  const auto backend = HostBackend::create({.link = {.bandwidth_bytes_per_second = 1}}).value();
  auto fetch = backend->make_queue({.name = "fetch"}).value();
  ASSERT_TRUE(fetch->call(Phase::fetch, [] { return std::size_t{100'000}; }));  // a day
  fetch.reset();
}

TEST(HostQueueLink, DestructionDoesNotSitOutAWaitForASlowTransfer) {
  const auto backend = HostBackend::create({.link = {.bandwidth_bytes_per_second = 1}}).value();
  const auto fetch = backend->make_queue({.name = "fetch"}).value();
  auto compute = backend->make_queue({.name = "compute"}).value();
  ASSERT_TRUE(fetch->call(Phase::fetch, [] { return std::size_t{100'000}; }));  // a day
  ASSERT_TRUE(compute->wait_for(*fetch->record()));
  const Ticket ticket = compute->record().value();
  EXPECT_EQ(wait(ticket, milliseconds(1)).error().code, Errc::not_ready);
  compute.reset();
}

TEST(HostQueue, AFullQueueHoldsItsCallerUpAndThenSaysSo) {
  const auto backend =
      HostBackend::create({.queue_capacity = 2, .enqueue_timeout = milliseconds(2)}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  std::atomic<bool> open{false};
  const auto gate = [&] {
    open.wait(false);
    return std::size_t{0};
  };
  ASSERT_TRUE(compute->call(Phase::model, gate));
  ASSERT_TRUE(compute->call(Phase::model, gate));
  const auto refused = compute->call(Phase::model, gate);
  open = true;
  open.notify_all();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::not_ready);
  EXPECT_THAT(std::string(refused.error().message()), testing::HasSubstr("compute is full"));
  EXPECT_TRUE(compute->drain(patience));
}

TEST(HostQueue, WaitingForWhatIsDoneTakesNoRoom) {
  const auto backend =
      HostBackend::create({.queue_capacity = 2, .enqueue_timeout = milliseconds(2)}).value();
  const auto first = backend->make_queue({.name = "first"}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  const Ticket done = first->call(Phase::model, [] { return std::size_t{0}; }).value();
  ASSERT_TRUE(wait(done, patience));
  std::atomic<bool> open{false};
  ASSERT_TRUE(compute->call(Phase::model, [&] {
    open.wait(false);
    return std::size_t{0};
  }));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(compute->wait_for(done));
  open = true;
  open.notify_all();
  EXPECT_TRUE(compute->drain(patience));
}

TEST(HostQueue, HearsOfWorkThatComesWhileItLiesDown) {
  const auto backend = HostBackend::create({.spin = Duration{}}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  for (int i = 0; i < 20'000; ++i) {
    const auto ticket = compute->call(Phase::model, [] { return std::size_t{0}; });
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(wait(*ticket, patience)) << i;
  }
}

/// A clock of a test's own that counts the looks of other threads.
class WatchedClock final : public Clock {
 public:
  [[nodiscard]] TimePoint now() const noexcept override {
    const TimePoint time = clock_.now();
    if (std::this_thread::get_id() != owner_) looks_.fetch_add(1);
    return time;
  }
  void advance(Duration by) noexcept { clock_.advance(by); }
  [[nodiscard]] std::size_t looks() const noexcept { return looks_.load(); }
  void await_looks(std::size_t count) const {
    while (looks() < count) std::this_thread::yield();
  }

 private:
  const std::thread::id owner_ = std::this_thread::get_id();
  ManualClock clock_;
  mutable std::atomic<std::size_t> looks_{0};
};

TEST(HostQueue, CountsStandingStillOnlyWithWorkBehindIt) {
  WatchedClock clock;
  clock.advance(milliseconds(1));
  const auto backend = HostBackend::create({.clock = &clock}).value();
  const auto slow = backend->make_queue({.name = "slow"}).value();
  const auto held_up = backend->make_queue({.name = "held up"}).value();
  const auto idle = backend->make_queue({.name = "idle"}).value();
  std::atomic<bool> began{false};
  std::atomic<bool> open{false};
  ASSERT_TRUE(slow->call(Phase::model, [&] {
    began = true;
    began.notify_all();
    open.wait(false);
    return std::size_t{0};
  }));
  began.wait(false);
  const Ticket ticket = slow->record().value();
  const std::size_t looks = clock.looks();
  // A queue looks at the clock as it begins to stand still.
  ASSERT_TRUE(held_up->wait_for(ticket));
  clock.await_looks(looks + 1);
  ASSERT_TRUE(held_up->call(Phase::model, [] { return std::size_t{0}; }));
  ASSERT_TRUE(idle->wait_for(ticket));
  clock.await_looks(looks + 2);
  clock.advance(milliseconds(5));
  open = true;
  open.notify_all();
  ASSERT_TRUE(held_up->drain(patience));
  ASSERT_TRUE(idle->drain(patience));
  EXPECT_EQ(held_up->counters().waited, milliseconds(5));
  EXPECT_EQ(idle->counters().waited, Duration{});
}

TEST(HostQueue, CountersFollowTheClockThatIsPassedIn) {
  ManualClock clock;
  const auto backend = HostBackend::create({.clock = &clock}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  ASSERT_TRUE(compute->call(Phase::attend, [&] {
    clock.advance(milliseconds(7));
    return std::size_t{0};
  }));
  ASSERT_TRUE(compute->drain(patience));
  EXPECT_EQ(busy(*compute, Phase::attend), milliseconds(7));
}

TEST(HostQueue, OffersTheDeviceThreadsToDeviceQueuesOnly) {
  const auto backend = HostBackend::create({.device_threads = 3}).value();
  const auto compute = backend->make_queue({.name = "compute"}).value();
  const auto cluster = backend->make_host_queue({.name = "cluster"}).value();
  EXPECT_EQ(&compute->threads(), &backend->device_threads());
  EXPECT_EQ(compute->threads().concurrency(), 3U);
  EXPECT_EQ(cluster->threads().concurrency(), 1U);
}

TEST(HostBackend, SaysWhoHoldsItsMemory) {
  const auto backend = HostBackend::create({}).value();
  auto* const host = dynamic_cast<HostBackend*>(backend.get());
  ASSERT_NE(host, nullptr);
  const auto index = backend->allocate({.bytes = 10, .purpose = Purpose::index}).value();
  EXPECT_EQ(host->in_use(Tier::device, Purpose::index), 10U);
  EXPECT_EQ(host->in_use(Tier::device, Purpose::kv), 0U);
  EXPECT_EQ(host->in_use(Tier::host, Purpose::index), 0U);
  const Buffer rows = backend->allocate({.bytes = 30, .tier = Tier::host}).value();
  EXPECT_EQ(host->in_use(Tier::host, Purpose::kv), 30U);
  for (const Tier lacking : {Tier::nvme, Tier::remote}) {
    EXPECT_EQ(host->in_use(lacking, Purpose::kv), 0U) << to_string(lacking);
    EXPECT_EQ(backend->memory(lacking).in_use, 0U) << to_string(lacking);
  }
}

TEST(HostBackend, RefusesOptionsThatMakeNoSense) {
  EXPECT_FALSE(HostBackend::create({.device_threads = 0}));
  EXPECT_FALSE(HostBackend::create({.link = {.bandwidth_bytes_per_second = -1}}));
  EXPECT_FALSE(HostBackend::create({.queue_capacity = 0}));
}

}  // namespace
}  // namespace terrace::offload
