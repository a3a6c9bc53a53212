// The sharing of the resident cache among sequences, and the cost that its upkeep may have.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

Scenario cached_scenario() {
  Scenario scenario;
  scenario.runtime.policy = "oracle";
  scenario.runtime.budget.value = 60;
  scenario.runtime.cache = {.policy = "lru", .tokens = 96};
  return scenario;
}

TEST(CacheSlots, AreDealtOutEquallyUpToTheQuota) {
  const CacheOptions options{.tokens = 1000};
  EXPECT_EQ(cache_slots(options, {.slot_tokens = 10}), 100U);
  EXPECT_EQ(cache_slots(options, {.slot_tokens = 10, .sharers = 3}), 33U);
  const CacheOptions limited{.tokens = 1000, .sequence_tokens = 400};
  EXPECT_EQ(cache_slots(limited, {.slot_tokens = 10}), 40U);
  EXPECT_EQ(cache_slots(limited, {.slot_tokens = 10, .sharers = 4}), 25U);
  const CacheOptions automatic{};
  EXPECT_EQ(cache_slots(automatic, {.slot_tokens = 10, .selected_tokens = 60, .sharers = 4}), 12U);
}

TEST(CacheSlots, SayWhatToGiveWhereThereIsNone) {
  const CacheSharing one{.slot_tokens = 32, .selected_tokens = 12};
  const CacheSharing three{.slot_tokens = 32, .selected_tokens = 12, .sharers = 3};
  EXPECT_EQ(why_no_slot({.tokens = 31}, one),
            "cache.tokens 31 holds no block of 32 tokens: no cache; give at least 32");
  EXPECT_EQ(why_no_slot({.tokens = 95}, three),
            "cache.tokens 95 holds no block of 32 tokens: no cache; give at least 96");
  EXPECT_EQ(why_no_slot({.tokens = 96, .sequence_tokens = 20}, three),
            "cache.sequence_tokens 20 holds no block of 32 tokens: no cache; give at least 32");
  EXPECT_EQ(
      why_no_slot({.granularity = CacheGranularity::cluster, .tokens = 3}, {.slot_tokens = 8}),
      "cache.tokens 3 holds no slot of clusters of 8 tokens: no cache; give at least 8");
  for (const CacheOptions& fine : {CacheOptions{.tokens = 32}, CacheOptions{.policy = "none"}}) {
    EXPECT_EQ(why_no_slot(fine, one), std::nullopt);
  }
  EXPECT_EQ(why_no_slot({}, one), std::nullopt) << "no size was asked for";
}

TEST(SharedCache, IsDealtAnewWhenASequenceComesOrGoes) {
  const Scenario scenario = cached_scenario();
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive first(*runtime, traffic);
  ASSERT_TRUE(first.prefill(300).has_value());
  ASSERT_TRUE(first.steps(3).has_value());
  EXPECT_EQ(first.sequence().cache_capacity_tokens(), 96U);
  {
    Drive second(*runtime, traffic);
    ASSERT_TRUE(second.prefill(300).has_value());
    EXPECT_EQ(second.sequence().cache_capacity_tokens(), 48U);
    EXPECT_EQ(first.sequence().cache_capacity_tokens(), 96U) << "until its next step";
    ASSERT_TRUE(first.step().has_value());
    EXPECT_EQ(first.sequence().cache_capacity_tokens(), 48U);
    ASSERT_TRUE(second.sequence().pause().has_value());
    ASSERT_TRUE(first.step().has_value());
    EXPECT_EQ(first.sequence().cache_capacity_tokens(), 96U);
    ASSERT_TRUE(second.sequence().resume().has_value());
    ASSERT_TRUE(second.step().has_value());
    EXPECT_EQ(second.sequence().cache_capacity_tokens(), 48U);
  }
  ASSERT_TRUE(first.step().has_value());
  EXPECT_EQ(first.sequence().cache_capacity_tokens(), 96U);
}

std::vector<std::uint64_t> figures(const SequenceCounters& counters) {
  return {counters.cache.rows_hit, counters.cache.rows_missed, counters.cache.admitted,
          counters.cache.evicted,  counters.cache.refused,     counters.cache.adopted,
          counters.bytes.refill,   counters.bytes.demand};
}

TEST(SharedCache, GivesASequenceTheSameHitsHoweverThreadsInterleave) {
  const Scenario scenario = cached_scenario();
  const auto run = [&](bool side_by_side) {
    const auto runtime = scenario.open();
    const Traffic traffics[] = {{scenario.runtime.shape, 1}, {scenario.runtime.shape, 2}};
    Drive drives[] = {{*runtime, traffics[0]}, {*runtime, traffics[1]}};
    for (Drive& drive : drives) EXPECT_TRUE(drive.prefill(300).has_value());
    if (side_by_side) {
      std::thread other([&] { EXPECT_TRUE(drives[1].steps(25).has_value()); });
      EXPECT_TRUE(drives[0].steps(25).has_value());
      other.join();
    } else {
      for (Drive& drive : drives) EXPECT_TRUE(drive.steps(25).has_value());
    }
    auto all = figures(drives[0].sequence().counters());
    const auto second = figures(drives[1].sequence().counters());
    all.insert(all.end(), second.begin(), second.end());
    return all;
  };
  const auto in_turn = run(false);
  EXPECT_GT(in_turn[0], 0U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run(true), in_turn);
}

/// Memory that compute reads and writes until a step has ended.
struct StepMemory {
  std::vector<std::vector<std::byte>> rows;
  std::vector<std::vector<float>> queries;
  std::vector<float> output;
};

/// Begins a step and enqueues the attention of all layers.
std::unique_ptr<Step> enqueue_step(Drive& drive, const Traffic& traffic, StepMemory& memory) {
  const std::size_t position = drive.sequence().length();
  memory.output.resize(traffic.shape().query_heads * traffic.shape().head_dim);
  auto step = drive.begin_step();
  for (std::size_t layer = 0; layer < traffic.shape().layers; ++layer) {
    memory.rows.push_back(traffic.rows(layer, {position, position + 1}));
    memory.queries.push_back(traffic.query(layer, position));
    const Status attended =
        step->attend(static_cast<LayerId>(layer), {.query = memory.queries.back().data(),
                                                   .kv = traffic.tensors(memory.rows.back(), 1),
                                                   .output = memory.output.data()});
    EXPECT_TRUE(attended.has_value()) << attended.error().message();
  }
  return step;
}

TEST(ResidentCacheUpkeep, IsWaitedForAsFarAsNothingComputesMeanwhile) {
  const Scenario scenario = cached_scenario();
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  StepMemory memory;
  ASSERT_TRUE(drive.prefill(300).has_value());

  auto step = enqueue_step(drive, traffic, memory);
  ASSERT_TRUE(drive.compute().drain(std::chrono::seconds{60}).has_value());
  ASSERT_TRUE(testing::end_step(*step).has_value());
  const SequenceCounters idle = drive.sequence().counters();
  EXPECT_GT(idle.upkeep, Duration{});
  EXPECT_GT(idle.upkeep_waited, Duration{});

  // An engine's model continues after the last attention.
  step = enqueue_step(drive, traffic, memory);
  const SequenceCounters enqueued = drive.sequence().counters();
  std::atomic<bool> over = false;
  const auto model = drive.compute().call(Phase::model, [&over] {
    while (!over) std::this_thread::yield();
    return std::size_t{0};
  });
  const Status ended = testing::end_step(*step);
  over = true;
  ASSERT_TRUE(model.has_value());
  ASSERT_TRUE(ended.has_value());
  const SequenceCounters busy = drive.sequence().counters();
  EXPECT_EQ(busy.upkeep_waited, enqueued.upkeep_waited);
  EXPECT_GT(busy.upkeep, enqueued.upkeep);
}

TEST(ResidentCacheUpkeep, GoesOnReplacingWhereMemoryIsSmallerThanTheCache) {
  struct Outcome {
    CacheCounters cache;
    std::size_t peak = 0;
  };
  const auto decode = [](const Scenario& scenario) -> Outcome {
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(300).has_value());
    testing::forget_prompt(*runtime);
    EXPECT_TRUE(drive.steps(40).has_value());
    return {drive.sequence().counters().cache, runtime->backend().memory(Tier::device).peak};
  };
  for (const char* const admission : {"always", "refill"}) {
    Scenario scenario = cached_scenario();
    scenario.runtime.cache.admission = admission;
    const Outcome fitting = decode(scenario);
    scenario.backend.device_memory_limit = fitting.peak;
    scenario.runtime.cache.tokens = 4096;
    const Outcome tight = decode(scenario);
    EXPECT_GT(tight.cache.evicted, 0U) << admission;
    EXPECT_GE(tight.cache.rows_hit * 4, fitting.cache.rows_hit) << admission;
  }
}

TEST(ResidentCacheUpkeep, NeverMovesMoreThanNoCacheWould) {
  for (const std::size_t tokens : {8U, 24U, 64U, 128U, 256U}) {
    for (const auto& entry : policies::replacement_policies()) {
      if (entry.needs_foresight) continue;
      Scenario scenario = cached_scenario();
      scenario.runtime.cache = {.policy = std::string(entry.name), .tokens = tokens};
      const auto runtime = scenario.open();
      const Traffic traffic(scenario.runtime.shape, 1);
      Drive drive(*runtime, traffic);
      ASSERT_TRUE(drive.prefill(300).has_value());
      for (int step = 0; step < 40; ++step) {
        ASSERT_TRUE(drive.step().has_value());
        const SequenceCounters counters = drive.sequence().counters();
        const std::uint64_t wanted = counters.cache.rows_hit + counters.cache.rows_missed;
        ASSERT_LE(counters.bytes.demand + counters.bytes.refill,
                  wanted * scenario.runtime.shape.row_bytes())
            << entry.name << " " << tokens << " step " << step;
      }
    }
  }
}

TEST(ResidentCacheUpkeep, KeepsBlocksThatLeaveTheWindowWithoutARefill) {
  Scenario scenario = cached_scenario();
  scenario.runtime.cache = {.policy = "lru", .tokens = 64};
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(300).has_value());
  ASSERT_TRUE(drive.steps(17).has_value());
  const SequenceCounters counters = drive.sequence().counters();
  // Eight blocks of each of two layers beside the window, then two that leave it in 17 steps.
  EXPECT_EQ(counters.cache.adopted, 2 * (8U + 2U));
  EXPECT_GT(counters.cache.rows_hit, 0U);
  drive.expect_all_rows_right();
}

TEST(ResidentCacheUpkeep, KeepsNothingOfAnEarlierPromptThatIsOnTheHostOnly) {
  for (const Placement placement : {Placement::offload, Placement::resident_first}) {
    Scenario scenario = cached_scenario();
    scenario.runtime.placement = placement;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(200).has_value());
    ASSERT_TRUE(drive.steps(5).has_value());
    ASSERT_TRUE(drive.sequence().pause().has_value());
    ASSERT_TRUE(drive.sequence().resume().has_value());
    ASSERT_TRUE(drive.prefill(400).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    Scenario roomy = scenario;
    roomy.runtime.cache.policy = "none";
    const auto other_runtime = roomy.open();
    Drive other(*other_runtime, traffic);
    ASSERT_TRUE(other.prefill(200).has_value());
    ASSERT_TRUE(other.steps(5).has_value());
    ASSERT_TRUE(other.prefill(400).has_value());
    ASSERT_TRUE(other.steps(10).has_value());
    EXPECT_EQ(drive.outputs(), other.outputs()) << static_cast<int>(placement);
  }
}

/// The blocks of each row of every list, but for those that hold a sink or a row of the window,
/// too: they lie in device memory anyway.
std::vector<std::size_t> selected_blocks(const StepSelection& selection, std::size_t block_tokens) {
  std::vector<std::size_t> blocks;
  for (std::size_t list = 0; list < selection.counts.size(); ++list) {
    for (std::size_t i = 0; i < selection.counts[list]; ++i) {
      const std::size_t block = selection.ids[list * selection.stride + i] / block_tokens;
      const bool beside_sinks = block * block_tokens < selection.sinks.end;
      const bool beside_window = (block + 1) * block_tokens > selection.window.begin;
      if (!beside_sinks && !beside_window) blocks.push_back(block);
    }
  }
  return blocks;
}

TEST(LastStepsCache, HitsWhatTheLastStepsWantedAndLoadsTheRest) {
  for (const std::size_t kept : {1U, 2U}) {
    Scenario scenario = cached_scenario();
    scenario.runtime.shape.layers = 1;
    scenario.runtime.cache = {.policy = "last_steps",
                              .admission = "always",
                              .tokens = 4096,
                              .replacement = {.last_steps = kept}};
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(300).has_value());
    std::vector<std::vector<std::size_t>> wanted;  // blocks, by step
    std::size_t compared = 0;
    // Blocks that left the window lie in the cache, too, until as many steps have not wanted them.
    std::size_t adopted_before = 0;
    for (std::size_t step = 0; step < 24; ++step) {
      drive.sequence().reset_counters();
      ASSERT_TRUE(drive.step().has_value());
      wanted.push_back(selected_blocks(drive.sequence().selection(LayerId{0}), 8));
      const SequenceCounters counters = drive.sequence().counters();
      if (counters.cache.adopted == 0 && step >= adopted_before + kept) {
        const auto recent = std::span(wanted).last(kept + 1).first(kept);
        const auto hit = std::ranges::count_if(wanted.back(), [&](std::size_t block) {
          return std::ranges::any_of(
              recent, [&](const auto& one) { return std::ranges::find(one, block) != one.end(); });
        });
        const std::size_t missed = wanted.back().size() - static_cast<std::size_t>(hit);
        EXPECT_EQ(counters.cache.rows_hit, static_cast<std::size_t>(hit)) << step << " R " << kept;
        EXPECT_EQ(counters.bytes.demand, missed * scenario.runtime.shape.row_bytes());
        ++compared;
      }
      if (counters.cache.adopted > 0) adopted_before = step + 1;
    }
    EXPECT_GT(compared, 10U);
  }
}

}  // namespace
}  // namespace terrace
