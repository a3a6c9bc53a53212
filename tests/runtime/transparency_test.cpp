// The place of a row, other sequences, and the number of threads must not change one bit.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

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
constexpr std::size_t step_count = 25;

class EachSelectingPolicy : public testing::OfEachPolicyWithACache {};

TEST_P(EachSelectingPolicy, GivesTheSameBitsWithAndWithoutACache) {
  const auto with_cache = outputs_of(scenario_, prompt, step_count);
  std::size_t variant = 0;
  std::vector<std::string> names{"none"};
  for (const auto& entry : policies::replacement_policies()) {
    if (!entry.needs_foresight) names.emplace_back(entry.name);
  }
  for (const std::string& policy : names) {
    for (const std::size_t tokens : {std::size_t{8}, std::size_t{96}, std::size_t{4096}}) {
      for (const char* const admission : {"always", "refill"}) {
        if (!testing::takes_variant(variant++)) continue;
        Scenario other = scenario_;
        other.runtime.cache = {.policy = policy, .admission = admission, .tokens = tokens};
        EXPECT_EQ(outputs_of(other, prompt, step_count), with_cache)
            << policy << " " << admission << " " << tokens;
      }
    }
  }
}

TEST_P(EachSelectingPolicy, GivesTheSameBitsWhenCachedBlocksAreDroppedAtRandom) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  for (std::size_t i = 0; i < step_count; ++i) {
    ASSERT_TRUE(drive.step().has_value());
    ASSERT_TRUE(testing::drop_cached(drive.sequence(), 0.5, i).has_value());
  }
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_GT(drive.sequence().counters().cache.rows_hit, 0U);
}

TEST_P(EachSelectingPolicy, GivesTheSameBitsUnderEveryPlacementAndIndexResidency) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  std::size_t variant = 0;
  for (const IndexResidency residency : {IndexResidency::host, IndexResidency::device}) {
    for (const Placement placement : {Placement::resident_first, Placement::offload}) {
      if (!testing::takes_variant(variant++)) continue;
      Scenario other = scenario_;
      other.runtime.placement = placement;
      other.runtime.index_residency = residency;
      EXPECT_EQ(outputs_of(other, prompt, step_count), expected)
          << static_cast<int>(placement) << static_cast<int>(residency);
    }
  }
}

TEST_P(EachSelectingPolicy, GivesTheSameBitsWhenARunningSequenceIsSpilled) {
  Scenario roomy = scenario_;
  roomy.runtime.placement = Placement::resident_first;
  roomy.runtime.cache.policy = "none";
  const std::size_t steps = 20 + 40 / testing::scenario_slowness;
  const auto expected = outputs_of(roomy, prompt, steps);
  // Find out what the run needs at least, then give it little more: it must spill as it grows.
  Scenario offloaded = roomy;
  offloaded.runtime.placement = Placement::offload;
  const auto runtime = offloaded.open();
  const Traffic traffic(roomy.runtime.shape, 1);
  {
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    testing::forget_prompt(*runtime);
    ASSERT_TRUE(drive.steps(steps).has_value());
  }
  Scenario tight = roomy;
  tight.backend.device_memory_limit =
      runtime->backend().memory(Tier::device).peak + roomy.least_step_bytes(prompt) + 10'000;
  const auto tight_runtime = tight.open();
  Drive drive(*tight_runtime, traffic);
  Status done = drive.prefill(prompt);
  if (done) done = drive.steps(steps);
  ASSERT_TRUE(done.has_value()) << done.error().message();
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_GT(drive.sequence().counters().cache.rows_resident, 0U);
  EXPECT_GT(drive.sequence().counters().cache.rows_missed, 0U);
  EXPECT_LE(tight_runtime->backend().memory(Tier::device).peak, tight.backend.device_memory_limit);
}

TEST_P(EachSelectingPolicy, GivesTheSameBitsOnAnyNumberOfThreads) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  std::size_t variant = 0;
  for (const std::size_t threads : {4U, 2U}) {
    if (!testing::takes_variant(variant++)) continue;
    Scenario other = scenario_;
    other.backend.device_threads = threads;
    other.runtime.host_threads = threads;
    EXPECT_EQ(outputs_of(other, prompt, step_count), expected) << threads;
  }
}

TEST_P(EachSelectingPolicy, GivesTheSameBitsInAnyOrderOfCompletion) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  for (std::uint64_t seed = 0; seed < testing::random_rounds(10); ++seed) {
    doubles::SeededScheduler scheduler(seed);
    Scenario other = scenario_;
    other.scheduler = &scheduler;
    EXPECT_EQ(outputs_of(other, prompt, step_count), expected) << "seed " << seed;
  }
}

TEST_P(EachSelectingPolicy, GivesTheSameBitsForSequencesInTurn) {
  const auto runtime = scenario_.open();
  const Traffic one(scenario_.runtime.shape, 1);
  const Traffic two(scenario_.runtime.shape, 2);
  Drive first(*runtime, one);
  Drive second(*runtime, two);
  ASSERT_TRUE(first.prefill(prompt).has_value());
  ASSERT_TRUE(second.prefill(prompt / 2).has_value());
  Rng rng(5);
  std::size_t left[] = {step_count, step_count};
  while (left[0] + left[1] > 0) {
    const std::size_t who = left[0] == 0 ? 1 : left[1] == 0 ? 0 : rng.below(2);
    --left[who];
    ASSERT_TRUE((who == 0 ? first : second).step().has_value());
  }
  EXPECT_EQ(first.outputs(), outputs_of(scenario_, prompt, step_count, 1));
  EXPECT_EQ(second.outputs(), outputs_of(scenario_, prompt / 2, step_count, 2));
}

TEST_P(EachSelectingPolicy, GivesTheSameBitsForSequencesSideBySide) {
  const auto runtime = scenario_.open();
  const Traffic traffics[] = {{scenario_.runtime.shape, 1}, {scenario_.runtime.shape, 2}};
  std::vector<StepOutput> outputs[2];
  const auto run = [&](std::size_t i) {
    Drive drive(*runtime, traffics[i]);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    EXPECT_TRUE(drive.steps(step_count).has_value());
    outputs[i] = drive.outputs();
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  EXPECT_EQ(outputs[0], outputs_of(scenario_, prompt, step_count, 1));
  EXPECT_EQ(outputs[1], outputs_of(scenario_, prompt, step_count, 2));
}

INSTANTIATE_TEST_SUITE_P(Table, EachSelectingPolicy,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

// Attention over everything in another order of rows: sums of n products of f32 differ by rounding,
// some n * 2^-24 of values of order 1. 1e-4 leaves room; a missing row is off by 1e-2 and more.
constexpr float tolerance = 1e-4F;

void expect_near(const std::vector<StepOutput>& a, const std::vector<StepOutput>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t step = 0; step < a.size(); ++step) {
    for (std::size_t i = 0; i < a[step].size(); ++i) {
      ASSERT_NEAR(a[step][i], b[step][i], tolerance) << "step " << step << " element " << i;
    }
  }
}

TEST(Exactness, IsFullAttentionsWhenTheBudgetCoversTheContext) {
  Scenario full;
  full.runtime.policy = "full";
  const auto expected = outputs_of(full, 150, 20);
  std::vector<std::string> names = testing::selecting_policies();
  names.emplace_back("streaming");
  for (const std::string& policy : names) {
    Scenario scenario;
    scenario.runtime.policy = policy;
    scenario.runtime.budget.value = 400;
    scenario.runtime.window_share = 0.1;
    SCOPED_TRACE(policy);
    expect_near(outputs_of(scenario, 150, 20), expected);
  }
}

TEST(Exactness, FailsWhenARowIsMissing) {
  Scenario full;
  full.runtime.policy = "full";
  Scenario streaming;
  streaming.runtime.policy = "streaming";
  streaming.runtime.budget.value = 168;  // two rows short of the 170th step's context
  const auto expected = outputs_of(full, 150, 20);
  const auto short_of = outputs_of(streaming, 150, 20);
  float worst = 0;
  for (std::size_t i = 0; i < expected.back().size(); ++i) {
    worst = std::max(worst, std::abs(expected.back()[i] - short_of.back()[i]));
  }
  EXPECT_GT(worst, 10 * tolerance);
}

TEST(Exactness, PqcacheWithACentroidForEveryRowSelectsWhatTheOracleSelects) {
  Scenario oracle;
  oracle.runtime.policy = "oracle";
  oracle.runtime.budget.value = 40;
  Scenario pqcache = oracle;
  pqcache.runtime.policy = "pqcache";
  pqcache.runtime.retrieval.pq = {.subspaces = 2, .bits = 8};
  // 200 rows beyond the sinks, 256 centroids: every sub-vector is its own centroid.
  EXPECT_EQ(outputs_of(pqcache, 200, 15), outputs_of(oracle, 200, 15));
}

TEST(ResidentIndexes, HaveTheirTablesWhenThoseOfAllLayersGrowForOne) {
  if (testing::scenario_slowness > 10) GTEST_SKIP() << "20,000 tokens take too long here";
  // Layers of a policy that takes batches grow one by one, and the tables of all with the first.
  const auto outputs = [](IndexResidency residency) {
    Scenario scenario;
    scenario.runtime.policy = "clusterkv";
    scenario.runtime.planning.iterations = {1};
    scenario.runtime.index_residency = residency;
    // Small, for it takes 20,480 tokens: 64 chunks of 320.
    scenario.runtime.shape.query_heads = scenario.runtime.shape.kv_heads = 1;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(13'700).has_value());
    EXPECT_TRUE(drive.prefill(20'450).has_value());
    EXPECT_TRUE(drive.steps(120).has_value());
    return drive.outputs();
  };
  EXPECT_EQ(outputs(IndexResidency::device), outputs(IndexResidency::host));
}

}  // namespace
}  // namespace terrace
