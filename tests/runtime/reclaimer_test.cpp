// Memory is taken from a sequence that can spare it, and never for nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <memory>
#include <thread>

#include "api/sequence_state.hpp"
#include "doubles/memory_store.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

/// Rows stay in device memory until there is too little of it.
Scenario resident() {
  Scenario scenario;
  scenario.runtime.placement = Placement::resident_first;
  return scenario;
}

SequenceParts& parts_of(Drive& drive) { return state_of(drive.sequence()).parts; }

bool has_all_on_device(Drive& drive) {
  return std::ranges::all_of(parts_of(drive).layers, [](const auto& layer) {
    return layer->rows.all_on_device(layer->rows.blocks());
  });
}

/// Gives `drive` a prompt and steps beside another sequence that has all rows on the device.
Status live(Drive& drive) {
  TERRACE_TRY(drive.prefill(300));
  return drive.steps(60);
}

TEST(Reclaimer, TakesNoDeviceMemoryWhereHostMemoryLacks) {
  Scenario scenario = resident();
  const Traffic traffic(scenario.runtime.shape, 1);
  std::array<std::size_t, 2> host_bytes{};
  {
    const auto runtime = scenario.open();
    Drive other(*runtime, traffic);
    ASSERT_TRUE(other.prefill(200).has_value());
    host_bytes[0] = runtime->backend().memory(Tier::host).in_use;
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(live(drive).has_value());
    host_bytes[1] = runtime->backend().memory(Tier::host).peak;
  }
  const auto [least, most] = host_bytes;
  std::size_t refused = 0;
  for (std::size_t limit = least; limit < most; limit += (most - least) / 40 + 1) {
    scenario.backend.host_memory_limit = limit;
    const auto runtime = scenario.open();
    Drive other(*runtime, traffic);
    if (!other.prefill(200)) continue;
    Drive drive(*runtime, traffic);
    const Status done = live(drive);
    EXPECT_TRUE(has_all_on_device(other)) << "limit " << limit;
    if (done) continue;
    ++refused;
    EXPECT_EQ(done.error().lacks, Tier::host) << done.error().message();
  }
  EXPECT_GT(refused, 0U);
}

/// Blocks later work on a sequence's refill queue.
class HeldCopies {
 public:
  explicit HeldCopies(Drive& drive) {
    const auto held =
        parts_of(drive).work.lanes.refill().call(Phase::update, [this]() -> Result<std::size_t> {
          released_.wait();
          return 0;
        });
    EXPECT_TRUE(held.has_value());
    for (const auto& layer : parts_of(drive).layers) layer->tickets().refilled = *held;
  }
  void release() { released_.count_down(); }

 private:
  std::latch released_{1};
};

TEST(Reclaimer, HoldsUpNobodyElseWhileItWaitsForCopies) {
  Scenario scenario = resident();
  const std::size_t all =
      600 * scenario.runtime.shape.layers * scenario.runtime.shape.token_bytes();
  scenario.backend.device_memory_limit = all + scenario.least_step_bytes(600) + 40'000;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive other(*runtime, traffic);
  ASSERT_TRUE(other.prefill(600).has_value());
  HeldCopies copies(other);
  Drive drive(*runtime, traffic);
  Status done;
  std::atomic<bool> ended = false;
  std::thread prompt([&] {
    done = drive.prefill(400);
    ended = true;
  });
  // Memory is being taken from a sequence while its mutex is held.
  std::mutex& taken_from = state_of(other.sequence()).mutex;
  while (!ended && taken_from.try_lock()) {
    taken_from.unlock();
    std::this_thread::yield();
  }
  EXPECT_TRUE(runtime->open_sequence().has_value());
  const bool was_free = taken_from.try_lock();
  if (was_free) taken_from.unlock();
  EXPECT_FALSE(was_free) << "to open a sequence took until nobody waited any more";
  copies.release();
  prompt.join();
  EXPECT_TRUE(done.has_value()) << done.error().message();
  EXPECT_FALSE(has_all_on_device(other));
}

TEST(SetLimit, GivesDeviceMemoryUpAndSequencesGoOn) {
  Scenario scenario = resident();
  const Traffic traffic(scenario.runtime.shape, 1);
  const auto expected = testing::outputs_of(scenario, 300, 20);
  const auto runtime = scenario.open();
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(300).has_value());
  ASSERT_TRUE(drive.steps(10).has_value());
  testing::forget_prompt(*runtime);
  const std::size_t before = runtime->backend().memory(Tier::device).in_use;
  ASSERT_TRUE(has_all_on_device(drive));
  const Status set = runtime->set_limit(Tier::device, before * 3 / 4);
  ASSERT_TRUE(set.has_value()) << set.error().message();
  EXPECT_LE(runtime->backend().memory(Tier::device).in_use, before * 3 / 4);
  EXPECT_FALSE(has_all_on_device(drive));
  ASSERT_TRUE(drive.steps(10).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_LE(runtime->backend().memory(Tier::device).in_use, before * 3 / 4);
}

TEST(SetLimit, SaysWhatStaysInUseAndHoldsAllTheSame) {
  Scenario scenario;
  const Traffic traffic(scenario.runtime.shape, 1);
  const auto runtime = scenario.open();
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(300).has_value());
  const Status set = runtime->set_limit(Tier::device, 1024);
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code, Errc::out_of_memory);
  {
    Drive other(*runtime, traffic);
    EXPECT_FALSE(other.prefill(300).has_value());
  }
  ASSERT_TRUE(runtime->set_limit(Tier::device, SIZE_MAX).has_value());
  ASSERT_TRUE(drive.steps(20).has_value());
  drive.expect_all_rows_right();
  EXPECT_FALSE(runtime->set_limit(Tier::remote, 1024).has_value());
}

TEST(SetLimit, SendsRowsBelowTheHost) {
  Scenario scenario;
  scenario.runtime.policy = "streaming";
  scenario.runtime.below_host.store = std::make_shared<doubles::MemoryStore>();
  const Traffic traffic(scenario.runtime.shape, 1);
  const auto runtime = scenario.open();
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(300).has_value());
  EXPECT_EQ(drive.sequence().counters().store.written, 0U);
  // The last blocks stay, and with them a region of pages.
  EXPECT_FALSE(runtime->set_limit(Tier::host, 64 << 10).has_value());
  EXPECT_GT(drive.sequence().counters().store.written, 0U);
  ASSERT_TRUE(runtime->set_limit(Tier::host, SIZE_MAX).has_value());
  ASSERT_TRUE(drive.steps(20).has_value());
  drive.expect_all_rows_right();
}

}  // namespace
}  // namespace terrace
