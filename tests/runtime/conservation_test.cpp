// No token is lost or wrong: every row is read back bit for bit from the tier that owns it.
#include <gtest/gtest.h>

#include "runtime/scenario.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

Scenario random_scenario(Rng& rng) {
  constexpr std::size_t dims[] = {2, 6, 16, 64};
  constexpr std::size_t blocks[] = {1, 3, 8, 32, 128};
  constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};
  const auto policies = policies::retrieval_policies();
  Scenario scenario;
  RuntimeOptions& options = scenario.runtime;
  options.shape.kv_heads = 1 + rng.below(3);
  options.shape.query_heads = options.shape.kv_heads * (1 + rng.below(3));
  options.shape.layers = 1 + rng.below(3);
  options.shape.head_dim = dims[rng.below(4)];
  options.shape.dtype = dtypes[rng.below(3)];
  options.policy = policies[rng.below(policies.size())].name;
  options.retrieval.pq = {.subspaces = 2, .bits = 4};
  options.block_tokens = blocks[rng.below(5)];
  options.sink_tokens = rng.below(40);
  options.window_share = rng.uniform();
  options.budget.value = static_cast<double>(1 + rng.below(300));
  options.cache.tokens = 1 + rng.below(512);
  options.cache.admission = rng.below(2) == 0 ? "always" : "refill";
  const auto policy = policies::make_retrieval_policy(options.policy, options.retrieval).value();
  const auto layout = policy->index_layout(options.shape);
  if (layout && layout->chunk_clusters > 0 && rng.below(2) == 0) {
    options.cache.granularity = CacheGranularity::cluster;
  } else if (rng.below(2) == 0) {
    options.cache.granularity = CacheGranularity::row;
  }
  options.placement = rng.below(2) == 0 ? Placement::offload : Placement::resident_first;
  options.index_residency = rng.below(2) == 0 ? IndexResidency::device : IndexResidency::host;
  options.planning.iterations = {2};
  return scenario;
}

TEST(Conservation, HoldsForRandomShapesLengthsAndSettings) {
  for (std::uint64_t seed = 0; seed < testing::random_rounds(40); ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Rng rng(seed);
    Scenario scenario = random_scenario(rng);
    // Half of the rounds end their copies in random order, most of them after the step.
    doubles::SeededScheduler scheduler(seed);
    if (rng.below(2) == 0) scenario.scheduler = &scheduler;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, seed);
    Drive drive(*runtime, traffic);
    const std::size_t length = 1 + rng.below(rng.below(4) == 0 ? 2000 : 200);
    Status done = drive.prefill(length, 1 + rng.below(256));
    ASSERT_TRUE(done.has_value()) << done.error().message();
    drive.expect_all_rows_right();
    for (int i = 0; i < 20; ++i) {
      done = drive.step();
      ASSERT_TRUE(done.has_value()) << done.error().message();
      if (length < 200 || i % 5 == 4) drive.expect_all_rows_right();
    }
    ASSERT_EQ(drive.sequence().length(), length + 20);
  }
}

TEST(Conservation, HoldsWhileTokensLeaveTheWindowOneByOne) {
  Scenario scenario;
  scenario.runtime.block_tokens = 4;
  scenario.runtime.budget.value = 20;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 7);
  Drive drive(*runtime, traffic);
  for (int i = 0; i < 100; ++i) {
    const Status done = drive.step();
    ASSERT_TRUE(done.has_value()) << done.error().message();
    drive.expect_all_rows_right();
  }
}

TEST(Conservation, AttendsNoMoreThanTheBudget) {
  std::size_t variant = 0;
  for (const double budget : {1.0, 2.0, 7.0, 48.0, 150.0}) {
    for (const auto& entry : policies::retrieval_policies()) {
      const std::string policy(entry.name);
      if (policy == "full" || !testing::takes_variant(variant++)) continue;
      Scenario scenario;
      scenario.runtime.policy = policy;
      scenario.runtime.budget.value = budget;
      const auto runtime = scenario.open();
      const Traffic traffic(scenario.runtime.shape, 3);
      Drive drive(*runtime, traffic);
      ASSERT_TRUE(drive.prefill(120).has_value());
      ASSERT_TRUE(drive.steps(10).has_value());
      const SequenceCounters counters = drive.sequence().counters();
      EXPECT_LE(static_cast<double>(counters.attended),
                budget * static_cast<double>(counters.lists))
          << policy;
      const StepSelection selection = drive.sequence().selection(LayerId{0});
      for (const std::uint32_t count : selection.counts) {
        EXPECT_LE(selection.sinks.size() + selection.window.size() + count,
                  static_cast<std::size_t>(budget));
      }
    }
  }
}

TEST(Conservation, GivesAllMemoryBackWhenTheSequenceCloses) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const std::size_t device = runtime->backend().memory(Tier::device).in_use;
  {
    const Traffic traffic(scenario.runtime.shape, 3);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(500).has_value());
    ASSERT_TRUE(drive.steps(5).has_value());
    EXPECT_GT(runtime->backend().memory(Tier::device).in_use, device);
  }
  // Slabs of blocks stay with the runtime, for the next sequence; a second life takes no more.
  const std::size_t kept = runtime->backend().memory(Tier::device).in_use;
  const std::size_t host = runtime->backend().memory(Tier::host).in_use;
  for (int life = 0; life < 3; ++life) {
    const Traffic traffic(scenario.runtime.shape, 4);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(500).has_value());
    ASSERT_TRUE(drive.steps(5).has_value());
  }
  EXPECT_EQ(runtime->backend().memory(Tier::device).in_use, kept);
  EXPECT_EQ(runtime->backend().memory(Tier::host).in_use, host);
}

TEST(Conservation, GivesBackWhatAPromptLeftThatIsCutBeforeItsFirstStep) {
  Scenario scenario;
  scenario.runtime.policy = "oracle";
  scenario.runtime.cache = {.admission = "always", .tokens = 128};
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 3);
  const auto live = [&] {
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(500).has_value());
    ASSERT_TRUE(drive.sequence().truncate(450).has_value());
    drive.expect_all_rows_right();
    // Steps until the prompt's remaining blocks lie between absent ones.
    ASSERT_TRUE(drive.steps(150).has_value());
    drive.expect_all_rows_right();
  };
  const auto device_bytes = [&] { return runtime->backend().memory(Tier::device).in_use; };
  live();
  const std::size_t kept = device_bytes();
  // Whatever a life keeps of the slabs, the next ones cannot use.
  for (int life = 0; life < 4; ++life) live();
  EXPECT_EQ(device_bytes(), kept);
}

}  // namespace
}  // namespace terrace
