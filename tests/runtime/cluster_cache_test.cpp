// A cache of clusters: the same bits as without a cache, for all units that it keeps or loses at
// any time, and bytes that add up.
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

struct Clustering {
  std::string name;
  std::string policy;
  ListScope lists = ListScope::kv_head;
};

std::vector<Clustering> clusterings() {
  std::vector<Clustering> all{{"clusterkv_per_query_head", "clusterkv", ListScope::query_head}};
  for (const std::string& policy : testing::clustering_policies()) all.push_back({policy, policy});
  return all;
}

class EachClustering : public ::testing::TestWithParam<Clustering> {
 protected:
  EachClustering() {
    scenario_.runtime.policy = GetParam().policy;
    scenario_.runtime.retrieval.clusterkv = {.tokens_per_cluster = 20, .lists = GetParam().lists};
    scenario_.runtime.budget.value = 60;
    scenario_.runtime.cache = {.policy = "lru",
                               .admission = "always",
                               .granularity = CacheGranularity::cluster,
                               .tokens = 96};
  }

  struct Decoded {
    SequenceCounters counters;
    std::vector<StepOutput> outputs;
  };
  /// Decodes after the prompt, which is not counted.
  static Decoded decode(const Scenario& scenario, std::size_t steps = step_count) {
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    drive.sequence().reset_counters();
    EXPECT_TRUE(drive.steps(steps).has_value());
    return {drive.sequence().counters(), drive.outputs()};
  }

  [[nodiscard]] std::vector<StepOutput> without_cache(std::size_t steps = step_count) const {
    Scenario plain = scenario_;
    plain.runtime.cache = {.policy = "none"};
    return outputs_of(plain, prompt, steps);
  }

  [[nodiscard]] std::size_t peak_without_cache(std::size_t steps, Tier tier = Tier::device) const {
    Scenario plain = scenario_;
    plain.runtime.cache = {.policy = "none"};
    const auto runtime = plain.open();
    const Traffic traffic(plain.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    if (tier == Tier::device) testing::forget_prompt(*runtime);
    EXPECT_TRUE(drive.steps(steps).has_value());
    return runtime->backend().memory(tier).peak;
  }

  /// Device memory that a prompt's step takes, at least.
  static constexpr std::size_t prompt_room = 60'000;

  /// Takes the memory of a prompt's step, so that it is not the cache's.
  static Buffer take_prompt_room(Runtime& runtime) {
    runtime.release_step_memory();
    auto ballast = runtime.backend().allocate({.bytes = prompt_room});
    return ballast ? std::move(*ballast) : Buffer();
  }

  static void expect_outputs(const Scenario& scenario, const std::vector<StepOutput>& expected) {
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    const Status filled = drive.prefill(prompt);
    const Buffer ballast = take_prompt_room(*runtime);
    ASSERT_TRUE(filled.has_value()) << filled.error().message();
    const Status done = drive.steps(expected.size());
    ASSERT_TRUE(done.has_value()) << done.error().message();
    EXPECT_EQ(drive.outputs(), expected);
  }

  Scenario scenario_;
};

TEST_P(EachClustering, GivesTheSameBitsWithAndWithoutACache) {
  const auto expected = without_cache();
  std::size_t variant = 0;
  for (const auto& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    for (const std::size_t tokens : {std::size_t{8}, std::size_t{96}, std::size_t{4096}}) {
      for (const char* const admission : {"always", "refill"}) {
        if (!testing::takes_variant(variant++)) continue;
        Scenario other = scenario_;
        other.runtime.cache.policy = entry.name;
        other.runtime.cache.admission = admission;
        other.runtime.cache.tokens = tokens;
        EXPECT_EQ(outputs_of(other, prompt, step_count), expected)
            << entry.name << " " << admission << " " << tokens;
      }
    }
  }
}

/// Returns the memory that steps find reserved, of the device and of the host.
std::vector<std::size_t> memory_in_use(Runtime& runtime) {
  return {runtime.backend().memory(Tier::device).in_use,
          runtime.backend().memory(Tier::host).in_use};
}

TEST_P(EachClustering, HasItsMemoryBeforeTheFirstStep) {
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const std::vector<std::size_t> before = memory_in_use(*runtime);
  ASSERT_TRUE(drive.steps(4).has_value());
  EXPECT_GT(drive.sequence().counters().cache.admitted, 0U);
  EXPECT_THAT(memory_in_use(*runtime), ::testing::Pointwise(::testing::Le(), before));
}

TEST_P(EachClustering, HasTheMemoryOfAForkBeforeItsFirstStep) {
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(4).has_value());
  Drive twin(drive.sequence().fork().value(), *runtime, traffic);
  const std::size_t before = runtime->backend().memory(Tier::device).in_use;
  ASSERT_TRUE(twin.step().has_value());
  EXPECT_GT(twin.sequence().counters().cache.admitted, 0U);
  EXPECT_EQ(runtime->backend().memory(Tier::device).in_use, before);
}

TEST_P(EachClustering, TakesACacheThatNothingCouldFill) {
  Scenario vast = scenario_;
  vast.runtime.cache.tokens = std::size_t{1} << 40;  // slots for it alone would be terabytes
  const Decoded decoded = decode(vast);
  EXPECT_EQ(decoded.outputs, without_cache());
  EXPECT_GT(decoded.counters.cache.rows_hit, 0U);
  EXPECT_EQ(decoded.counters.cache.evicted, 0U);
}

TEST_P(EachClustering, HitsAndPaysForExactlyWhatItMissesAndRefills) {
  const SequenceCounters counters = decode(scenario_).counters;
  EXPECT_GT(counters.cache.rows_hit, 0U);
  EXPECT_GT(counters.cache.evicted, 0U);
  EXPECT_GT(counters.cache.admitted, counters.cache.evicted);
  EXPECT_EQ(counters.bytes.demand,
            counters.cache.rows_missed * scenario_.runtime.shape.row_bytes());
  Scenario plain = scenario_;
  plain.runtime.cache = {.policy = "none"};
  EXPECT_EQ(counters.cache.rows_hit + counters.cache.rows_missed,
            decode(plain).counters.cache.rows_missed);
}

TEST_P(EachClustering, HitsMoreTheMoreStepsItsClustersStay) {
  const auto expected = without_cache();
  scenario_.runtime.cache.tokens = 4096;  // room for all: only steps end a cluster's stay
  scenario_.runtime.cache.policy = "last_steps";
  std::uint64_t hit_before = 0;
  for (const std::size_t steps : {1U, 2U}) {
    scenario_.runtime.cache.replacement.last_steps = steps;
    const auto [counters, outputs] = decode(scenario_);
    EXPECT_EQ(outputs, expected) << steps;
    EXPECT_GT(counters.cache.rows_hit, hit_before) << steps;
    EXPECT_GT(counters.cache.rows_missed, 0U) << steps;
    EXPECT_EQ(counters.bytes.demand,
              counters.cache.rows_missed * scenario_.runtime.shape.row_bytes());
    hit_before = counters.cache.rows_hit;
  }
}

TEST_P(EachClustering, MovesNoMoreThanNoCacheWouldWhereRefillsArePaidFor) {
  scenario_.runtime.cache.admission = "refill";
  const auto moved = [&](const Scenario& scenario) {
    const LinkBytes bytes = decode(scenario, 100 / testing::scenario_slowness).counters.bytes;
    return bytes.demand + bytes.refill;
  };
  Scenario plain = scenario_;
  plain.runtime.cache = {.policy = "none"};
  EXPECT_LE(moved(scenario_), moved(plain));
}

TEST_P(EachClustering, GivesTheSameBitsWhenCachedClustersAreDroppedAtRandom) {
  const auto expected = without_cache();
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

TEST_P(EachClustering, GoesWithoutACacheThatHoldsNoSlot) {
  const auto expected = without_cache();
  scenario_.runtime.cache.tokens = 1;
  EXPECT_EQ(outputs_of(scenario_, prompt, step_count), expected);
}

TEST_P(EachClustering, GivesTheSameBitsWithIndexesOnTheHostAndInAnyOrderOfCompletion) {
  const auto expected = without_cache();
  scenario_.runtime.index_residency = IndexResidency::host;
  for (std::uint64_t seed = 0; seed < testing::random_rounds(10); ++seed) {
    doubles::SeededScheduler scheduler(seed);
    Scenario other = scenario_;
    other.scheduler = &scheduler;
    EXPECT_EQ(outputs_of(other, prompt, step_count), expected) << "seed " << seed;
  }
}

TEST_P(EachClustering, FetchesBesideComputeWhateverTheNumberOfLayers) {
  for (const std::size_t layers : {1U, 4U, 5U, 8U, 9U, 13U}) {
    Scenario other = scenario_;
    other.runtime.shape.layers = layers;
    const auto runtime = other.open();
    const Traffic traffic(other.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(step_count).has_value());
    EXPECT_GT(drive.sequence().counters().bytes.refill, 0U) << layers;
    const QueueCounters compute = drive.compute().counters();
    EXPECT_EQ(compute.bytes[static_cast<std::size_t>(Phase::refill)], 0U) << layers;
  }
}

TEST_P(EachClustering, GoesOnThroughPauseForkAndTruncation) {
  const std::size_t all = 120 / testing::scenario_slowness;
  const auto expected = without_cache(all);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  Rng rng(3);
  while (drive.outputs().size() < all) {
    ASSERT_TRUE(drive.step().has_value());
    if (rng.below(20) == 0) {
      ASSERT_TRUE(drive.sequence().pause().has_value());
      ASSERT_TRUE(drive.sequence().resume().has_value());
    }
  }
  EXPECT_EQ(drive.outputs(), expected);
  Drive twin(drive.sequence().fork().value(), *runtime, traffic);
  ASSERT_TRUE(twin.steps(10).has_value());
  ASSERT_TRUE(drive.steps(10).has_value());
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(twin.outputs()[i], drive.outputs()[all + i]);
  // Positions after a truncation get other rows; the old rows must not be found.
  ASSERT_TRUE(drive.sequence().truncate(prompt - 40).has_value());
  const Traffic changed(scenario_.runtime.shape, 2);
  Drive rest(drive.sequence().fork().value(), *runtime, changed);
  ASSERT_TRUE(rest.steps(80 / testing::scenario_slowness).has_value());
  drive.expect_all_rows_right();
}

TEST_P(EachClustering, FailsNoStepForItsOwnTables) {
  Scenario roomy = scenario_;
  roomy.runtime.cache.tokens = 4096;
  const auto expected = without_cache();
  const std::size_t least = peak_without_cache(step_count);
  // Each layer has a staging area of its own, which takes less than 8 KB; the tables take 20.
  for (const std::size_t room : {8'000U, 12'000U, 16'000U, 20'000U, 25'000U}) {
    roomy.backend.device_memory_limit = least + room + prompt_room;
    SCOPED_TRACE(room);
    expect_outputs(roomy, expected);
  }
}

TEST_P(EachClustering, FailsNoStepForWhatItSendsFromTheHost) {
  // Nearly whole clusters come and go, many times as many rows as a step wants.
  scenario_.runtime.retrieval.clusterkv.tokens_per_cluster = 60;
  Scenario roomy = scenario_;
  roomy.runtime.cache.tokens = 4096;
  const auto expected = without_cache();
  const std::size_t least = peak_without_cache(step_count, Tier::host);
  for (std::size_t room = 0; room < 60'000; room += 3'000) {
    if (!testing::takes_variant(room / 3'000)) continue;
    roomy.backend.host_memory_limit = least + room;
    SCOPED_TRACE(room);
    expect_outputs(roomy, expected);
  }
}

TEST_P(EachClustering, KeepsWithinDeviceMemoryAndGivesItBack) {
  Scenario roomy = scenario_;
  roomy.runtime.cache.tokens = 4096;
  const Traffic traffic(roomy.runtime.shape, 1);
  const std::size_t steps = 20 + 40 / testing::scenario_slowness;
  const auto expected = without_cache(steps);
  roomy.backend.device_memory_limit = peak_without_cache(steps) + 30'000 + prompt_room;
  const auto runtime = roomy.open();
  std::size_t kept = 0;  // slabs of blocks stay with the runtime, for the next sequence
  for (std::size_t life = 0; life < 3; ++life) {
    {
      Drive drive(*runtime, traffic);
      ASSERT_TRUE(drive.prefill(prompt).has_value());
      const Buffer ballast = take_prompt_room(*runtime);
      const Status done = drive.steps(steps);
      ASSERT_TRUE(done.has_value()) << done.error().message();
      EXPECT_EQ(drive.outputs(), expected);
      EXPECT_GT(drive.sequence().counters().cache.rows_hit, 0U);
    }
    runtime->release_step_memory();
    const std::size_t in_use = runtime->backend().memory(Tier::device).in_use;
    if (life < 2) kept = in_use;
    EXPECT_EQ(in_use, kept);
  }
  EXPECT_LE(runtime->backend().memory(Tier::device).peak, roomy.backend.device_memory_limit);
}

TEST_P(EachClustering, ReadsNoFartherThanTheTableThatAShareOfNoSlotLeft) {
  scenario_.runtime.cache.tokens = 8;  // a slot for one sequence, not for two
  const auto live = [](const Scenario& scenario) {
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive lasting(*runtime, traffic);
    EXPECT_TRUE(lasting.prefill(prompt).has_value());
    EXPECT_TRUE(lasting.steps(3).has_value());
    Drive guest(*runtime, traffic);
    EXPECT_TRUE(guest.prefill(prompt).has_value());
    EXPECT_TRUE(lasting.step().has_value());
    EXPECT_TRUE(lasting.prefill(3 * prompt).has_value());
    EXPECT_TRUE(lasting.steps(5).has_value());
    return lasting.outputs();
  };
  Scenario plain = scenario_;
  plain.runtime.cache = {.policy = "none"};
  EXPECT_EQ(live(scenario_), live(plain));
}

TEST_P(EachClustering, GivesTheSameBitsToSequencesThatShareIt) {
  const auto expected = without_cache(40);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive lasting(*runtime, traffic);
  ASSERT_TRUE(lasting.prefill(prompt).has_value());
  ASSERT_TRUE(lasting.steps(10).has_value());
  const std::size_t alone = lasting.sequence().cache_capacity_tokens();
  {
    Drive guest(*runtime, traffic);
    ASSERT_TRUE(guest.prefill(prompt).has_value());
    for (int i = 0; i < 15; ++i) {
      ASSERT_TRUE(lasting.step().has_value());
      ASSERT_TRUE(guest.step().has_value());
    }
    EXPECT_EQ(2 * lasting.sequence().cache_capacity_tokens(), alone);
  }
  ASSERT_TRUE(lasting.steps(15).has_value());
  EXPECT_EQ(lasting.sequence().cache_capacity_tokens(), alone);
  EXPECT_EQ(lasting.outputs(), expected);
}

TEST_P(EachClustering, GivesTheSameBitsWhenItsShareShrinksBehindAnAdmission) {
  const std::size_t steps = 5 + 20 / testing::scenario_slowness;
  scenario_.runtime.cache.tokens = 256;
  scenario_.runtime.cache.policy = "lfu";
  const auto expected = without_cache(steps);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive lasting(*runtime, traffic);
  ASSERT_TRUE(lasting.prefill(prompt).has_value());
  for (std::size_t i = 0; i < steps; ++i) {
    // Units that the last step admitted are not in their slots yet.
    std::vector<std::unique_ptr<Drive>> guests;
    for (std::size_t guest = 0; guest < i % 4; ++guest) {
      guests.push_back(std::make_unique<Drive>(*runtime, traffic));
      ASSERT_TRUE(guests.back()->prefill(40).has_value());
    }
    ASSERT_TRUE(lasting.step().has_value());
    ASSERT_TRUE(testing::drop_cached(lasting.sequence(), 0.3, i).has_value());
  }
  EXPECT_EQ(lasting.outputs(), expected);
  EXPECT_GT(lasting.sequence().counters().cache.rows_hit, 0U);
}

TEST_P(EachClustering, LosesNothingWhileIndexesAreBuiltAnew) {
  scenario_.runtime.refresh = {.tokens = 30};
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  drive.sequence().reset_counters();
  for (std::size_t i = 0; i < 400 / testing::scenario_slowness; ++i) {
    ASSERT_TRUE(drive.step().has_value());
  }
  const SequenceCounters counters = drive.sequence().counters();
  EXPECT_EQ(counters.bytes.demand,
            counters.cache.rows_missed * scenario_.runtime.shape.row_bytes());
  drive.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Policies, EachClustering, ::testing::ValuesIn(clusterings()),
                         [](const auto& one) { return one.param.name; });

TEST(ClusterCache, IsRefusedToAPolicyWithoutClusters) {
  Scenario scenario;
  scenario.runtime.policy = "pqcache";
  scenario.runtime.cache.granularity = CacheGranularity::cluster;
  const auto opened = Runtime::open(scenario.runtime, testing::make_scenario_backend({}));
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Errc::unsupported);
  EXPECT_THAT(std::string(opened.error().message()), ::testing::HasSubstr("cache.granularity"));
  for (const char* const policy : {"full", "streaming"}) {
    scenario.runtime.policy = policy;
    EXPECT_TRUE(Runtime::open(scenario.runtime, testing::make_scenario_backend({})).has_value())
        << policy << " selects nothing, so there is nothing to cache";
  }
}

}  // namespace
}  // namespace terrace
