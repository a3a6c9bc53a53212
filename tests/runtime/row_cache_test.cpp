// A cache of rows, which the device keeps by itself: the same bits as without a cache, whatever it
// holds or loses at any time, and counts that add up.
#include <gmock/gmock.h>

#include "policies/selecting_policies.hpp"
#include "runtime/drop_cached.hpp"
#include "runtime/scenario.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

constexpr std::size_t prompt = 300;
const std::size_t step_count = 8 + 17 / testing::scenario_slowness;

class EachCacheOfRows : public ::testing::TestWithParam<std::string> {
 protected:
  EachCacheOfRows() {
    scenario_.runtime.policy = GetParam();
    scenario_.runtime.budget.value = 60;
    scenario_.runtime.cache = {.granularity = CacheGranularity::row, .tokens = 96};
  }

  /// Decodes after the prompt, which is not counted.
  static SequenceCounters decode(const Scenario& scenario, std::vector<StepOutput>& outputs) {
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    drive.sequence().reset_counters();
    EXPECT_TRUE(drive.steps(step_count).has_value());
    outputs = drive.outputs();
    return drive.sequence().counters();
  }

  [[nodiscard]] Scenario plain() const {
    Scenario plain = scenario_;
    plain.runtime.cache = {.policy = "none"};
    return plain;
  }
  [[nodiscard]] std::vector<StepOutput> without_cache(std::size_t steps = step_count) const {
    return outputs_of(plain(), prompt, steps);
  }

  Scenario scenario_;
};

TEST_P(EachCacheOfRows, GivesTheSameBitsAndCountsWhatItFindsAndMisses) {
  std::vector<StepOutput> expected;
  const SequenceCounters without = decode(plain(), expected);
  for (const std::size_t tokens : {std::size_t{4}, std::size_t{96}, std::size_t{1} << 40}) {
    SCOPED_TRACE(tokens);
    scenario_.runtime.cache.tokens = tokens;
    std::vector<StepOutput> outputs;
    const SequenceCounters counters = decode(scenario_, outputs);
    EXPECT_EQ(outputs, expected);
    const CacheCounters& cache = counters.cache;
    EXPECT_EQ(cache.rows_hit + cache.rows_missed, without.cache.rows_missed);
    EXPECT_EQ(cache.rows_resident, without.cache.rows_resident);
    EXPECT_EQ(counters.attended, without.attended);
    EXPECT_EQ(cache.admitted + cache.refused, cache.rows_missed);
    EXPECT_LE(cache.evicted, cache.admitted);
    EXPECT_EQ(counters.bytes.demand, cache.rows_missed * scenario_.runtime.shape.row_bytes());
    EXPECT_EQ(counters.bytes.refill, 0U) << "rows come where they are fetched anyway";
    EXPECT_EQ(cache.rows_hit > 0, tokens > 4) << "a cache of no block keeps nothing";
    if (tokens > 96) {
      EXPECT_EQ(cache.evicted, 0U);
    }
  }
}

TEST_P(EachCacheOfRows, GivesTheSameBitsWhenRowsAreDroppedAtRandom) {
  const auto expected = without_cache();
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  for (std::size_t i = 0; i < step_count; ++i) {
    ASSERT_TRUE(drive.step().has_value());
    ASSERT_TRUE(testing::drop_cached(drive.sequence(), 0.3, i).has_value());
  }
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_GT(drive.sequence().counters().cache.rows_hit, 0U);
}

TEST_P(EachCacheOfRows, GivesTheSameBitsInAnyOrderOfCompletion) {
  const auto expected = without_cache();
  for (std::uint64_t seed = 0; seed < testing::random_rounds(10); ++seed) {
    doubles::SeededScheduler scheduler(seed);
    Scenario other = scenario_;
    other.scheduler = &scheduler;
    EXPECT_EQ(outputs_of(other, prompt, step_count), expected) << "seed " << seed;
  }
}

/// The outputs of a sequence that is paused, forked and cut, and goes on with other tokens.
std::vector<StepOutput> live(const Scenario& scenario) {
  const auto runtime = scenario.open();
  Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(prompt).has_value());
  Rng rng(3);
  for (std::size_t i = 0; i < 60 / testing::scenario_slowness; ++i) {
    EXPECT_TRUE(drive.step().has_value());
    if (rng.below(20) != 0) continue;
    EXPECT_TRUE(drive.sequence().pause().has_value());
    EXPECT_TRUE(drive.sequence().resume().has_value());
  }
  Drive twin(drive.sequence().fork().value(), *runtime, traffic);
  EXPECT_TRUE(twin.steps(10).has_value());
  // Positions after a cut get other rows; the old rows must not be found.
  EXPECT_TRUE(drive.sequence().truncate(prompt - 150).has_value());
  traffic = Traffic(scenario.runtime.shape, 2);
  EXPECT_TRUE(drive.steps(40 + 200 / testing::scenario_slowness).has_value());
  std::vector<StepOutput> outputs = drive.outputs();
  outputs.insert(outputs.end(), twin.outputs().begin(), twin.outputs().end());
  return outputs;
}

TEST_P(EachCacheOfRows, GivesTheSameBitsThroughPauseForkAndCut) {
  EXPECT_EQ(live(scenario_), live(plain()));
}

TEST_P(EachCacheOfRows, GivesTheSameBitsBehindALongPromptThatSelects) {
  // A later prompt selects, of more positions than the tables had room for before it.
  const auto decode_behind_two_prompts = [](Scenario scenario) {
    scenario.runtime.prompts = PromptAttention::retrieved;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    EXPECT_TRUE(drive.steps(3).has_value());
    const std::size_t later = testing::scenario_slowness > 1 ? 2 * prompt : 4 * prompt;
    EXPECT_TRUE(drive.prefill(later, 100).has_value());
    EXPECT_TRUE(drive.steps(3).has_value());
    return drive.outputs();
  };
  EXPECT_EQ(decode_behind_two_prompts(scenario_), decode_behind_two_prompts(plain()));
}

TEST_P(EachCacheOfRows, GivesTheSameBitsToSequencesThatShareIt) {
  const std::size_t steps = 5 + 20 / testing::scenario_slowness;
  scenario_.runtime.cache.tokens = 256;
  const auto expected = without_cache(steps);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive lasting(*runtime, traffic);
  ASSERT_TRUE(lasting.prefill(prompt).has_value());
  for (std::size_t i = 0; i < steps; ++i) {
    std::vector<std::unique_ptr<Drive>> guests;
    for (std::size_t guest = 0; guest < i % 4; ++guest) {
      guests.push_back(std::make_unique<Drive>(*runtime, traffic));
      ASSERT_TRUE(guests.back()->prefill(40).has_value());
    }
    ASSERT_TRUE(lasting.step().has_value());
    EXPECT_LE(lasting.sequence().cache_capacity_tokens(), 256 / (1 + i % 4));
  }
  EXPECT_EQ(lasting.outputs(), expected);
  EXPECT_GT(lasting.sequence().counters().cache.rows_hit, 0U);
}

TEST_P(EachCacheOfRows, FailsNoStepForItsMemory) {
  scenario_.runtime.cache.tokens = 4096;
  const auto expected = without_cache();
  const auto open = plain().open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*open, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  const std::size_t least = open->backend().memory(Tier::device).peak;
  for (std::size_t room = 0; room < 120'000; room += 15'000) {
    if (!testing::takes_variant(room / 15'000)) continue;
    SCOPED_TRACE(room);
    Scenario tight = scenario_;
    tight.backend.device_memory_limit = least + room;
    EXPECT_EQ(outputs_of(tight, prompt, step_count), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EachCacheOfRows,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& one) { return one.param; });

TEST(RowCache, TakesNothingInLayersThatAttendToAll) {
  Scenario scenario;
  scenario.runtime.policy = "pqcache";
  scenario.runtime.cache = {.granularity = CacheGranularity::row, .tokens = 4096};
  const auto bytes = [&](std::size_t dense) {
    scenario.runtime.dense_layers = dense;
    const auto runtime = scenario.open();
    const std::size_t with = runtime->memory_need({.tokens = 1'000}).value().device_cache;
    return with;
  };
  EXPECT_GT(bytes(0), bytes(1));
}

TEST(RowCache, IsRefusedWithAPolicyThatWouldChooseOtherRows) {
  Scenario scenario;
  scenario.runtime.policy = "pqcache";
  scenario.runtime.cache = {.policy = "lfu", .granularity = CacheGranularity::row};
  const auto opened = Runtime::open(scenario.runtime, testing::make_scenario_backend({}));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Errc::unsupported);
  EXPECT_THAT(std::string(opened.error().message()), ::testing::HasSubstr("cache.policy lfu"));
  EXPECT_THAT(std::string(opened.error().message()), ::testing::HasSubstr("to lru"));
}

}  // namespace
}  // namespace terrace
