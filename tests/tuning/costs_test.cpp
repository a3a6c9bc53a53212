#include "terrace/tuning/costs.hpp"

#include <gmock/gmock.h>

#include "terrace/runtime/options.hpp"
#include "tuning/made_up_trace.hpp"

namespace terrace::tuning {
namespace {

constexpr StepCosts costs{
    .link = {.bandwidth_bytes_per_second = 1e6, .latency = std::chrono::milliseconds{1}},
    .select_seconds = 0.010,
    .attend_seconds = 0.020};

TEST(StepClock, HoldsALayerUpForItsMissesAndItsNextStepForItsRefills) {
  StepClock clock(costs, 2);
  clock.layer(0, 5'000, 200'000);  // 10 + (1 + 5) + 20 ms
  EXPECT_NEAR(clock.seconds(), 0.036, 1e-9);
  clock.layer(1, 0, 0);  // not held up: nothing to fetch
  EXPECT_NEAR(clock.seconds(), 0.066, 1e-9);
  clock.end_step({});    // refills until 66 + 201
  clock.layer(0, 0, 0);  // waits for them
  EXPECT_NEAR(clock.seconds(), 0.267 + 0.030, 1e-9);
}

TEST(StepClock, LetsTransfersWaitForEachOther) {
  StepClock clock(costs, 2);
  clock.layer(0, 0, 0);
  clock.layer(1, 0, 100'000);
  EXPECT_NEAR(clock.seconds(), 0.060, 1e-9);
  clock.end_step({.index = 9'000});  // the link is taken to 161 ms by refills, to 171 by codes
  clock.layer(0, 1'000, 0);          // selects by these, asks at 181, gets its rows at 183
  EXPECT_NEAR(clock.seconds(), 0.183 + 0.020, 1e-9);
}

TEST(StepClock, EndsAStepWhenItsRowsAndIdsAreOnTheHost) {
  StepClock clock(costs, layers_per_batch + 1);
  for (std::size_t layer = 0; layer <= layers_per_batch; ++layer) clock.layer(layer, 0, 0);
  EXPECT_NEAR(clock.seconds(), 0.150, 1e-9);
  // The first batch leaves at 100 ms and takes 1 + 40, the second leaves then, and not at 130.
  clock.end_step({.to_host = 80'000});
  EXPECT_NEAR(clock.seconds(), 0.182, 1e-9);
  clock.layer(0, 0, 0);
  clock.end_step({.to_host = 1'000});  // there before attention ends
  EXPECT_NEAR(clock.seconds(), 0.182 + (layers_per_batch + 1) * 0.030, 1e-9);
}

TEST(StepClock, LooksAfterTheCacheWhenTheIdsAreThereAndBeforeItAsksForRefills) {
  StepClock clock(costs, 2);
  clock.layer(0, 0, 8'000, 0.003);
  clock.layer(1, 0, 0, 0.004);
  clock.end_step({.to_host = 100'000});  // leaves at 40 ms and takes 1 + 100; upkeep until 148
  EXPECT_NEAR(clock.seconds(), 0.148, 1e-9);
  clock.layer(0, 0, 0);  // its refills, asked for then, took 1 + 8
  EXPECT_NEAR(clock.seconds(), 0.157 + 0.030, 1e-9);
}

TEST(StepClock, CountsLayersThatSelectNothing) {
  StepClock clock(costs, 3);
  clock.layer(1, 0, 0);
  clock.end_step({});
  EXPECT_NEAR(clock.seconds(), 0.090, 1e-9);
}

TEST(CostPresets, ReadTheWeightsOnceAToken) {
  TraceHead head = made_up_head({.layers = 32});
  head.shape = {.layers = 32, .query_heads = 32, .kv_heads = 8, .head_dim = 128};
  head.weight_bytes = 16'000'000'000;
  for (const auto& [name, expected] :
       {std::pair{"pcie4-a100", 8.0e-3}, {"pcie5-h100", 4.8e-3}, {"pcie5-h200", 3.35e-3}}) {
    const StepCosts its = preset_costs(name, head).value();
    StepClock clock(its, 32);
    for (std::size_t layer = 0; layer < 32; ++layer) clock.layer(layer, 0, 0);
    EXPECT_NEAR(clock.seconds(), expected, 0.2 * expected) << name;
  }
  EXPECT_EQ(cost_presets().size(), 6U);
  EXPECT_THAT(std::string(preset_costs("pcie5-h10", head).error().message()),
              testing::HasSubstr("did you mean pcie5-h100?"));
}

TEST(ProfileCosts, AreThoseOfAPresetWhereTheTraceHoldsNoTimes) {
  const TraceHead head = made_up_head({});
  const CostPreset preset = find_cost_preset("pcie5-h100").value();
  MachineProfile profile = preset_profile(preset);
  const auto why_not = [&] {
    return std::string(profile_costs(profile, head, {}).error().message());
  };
  EXPECT_THAT(why_not(), testing::HasSubstr("bench kernels --write-profile"));
  profile.host["memory_read"] = preset.device_bytes_per_second;
  const StepCosts its = profile_costs(profile, head, {}).value();
  const StepCosts expected = preset_costs("pcie5-h100", head).value();
  EXPECT_EQ(its.link.bandwidth_bytes_per_second, expected.link.bandwidth_bytes_per_second);
  EXPECT_EQ(its.link.latency, expected.link.latency);
  EXPECT_EQ(its.select_seconds, expected.select_seconds);
  EXPECT_EQ(its.attend_seconds, expected.attend_seconds);

  const TraceEnd timed{.run = RecordedRun{.decode_seconds = 0.5}};
  EXPECT_EQ(profile_costs(profile, head, timed).value().attend_seconds, 0.25) << "two layers";
  profile.link.reset();
  EXPECT_THAT(why_not(), testing::HasSubstr("bench pcie --write-profile"));
}

TEST(CostPresets, AreKnownByNameOnly) {
  for (const CostPreset& preset : cost_presets()) {
    EXPECT_EQ(find_cost_preset(preset.name).value().meaning, preset.meaning);
    const MachineProfile profile = preset_profile(preset);
    EXPECT_EQ(profile.link.value().bandwidth, preset.link_bytes_per_second);
    EXPECT_GT(profile.link.value().latency, 0);
    EXPECT_TRUE(profile.compute.empty());
  }
  const auto unknown = find_cost_preset("/nowhere.yaml");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::invalid_argument);
  for (const CostPreset& preset : cost_presets()) {
    EXPECT_THAT(std::string(unknown.error().message()),
                testing::HasSubstr(std::string(preset.name)));
  }
}

TEST(RecordedCosts, NeedARun) {
  EXPECT_FALSE(recorded_costs(made_up_head({}), {}, {}));
  TraceEnd end;
  end.run = RecordedRun{.decode_seconds = 0.1, .link_seconds = 0.02, .select_seconds = 0.01};
  const StepCosts its = recorded_costs(made_up_head({.layers = 2}), end, {}).value();
  EXPECT_NEAR(its.select_seconds, 0.005, 1e-9);
  EXPECT_NEAR(its.attend_seconds, 0.035, 1e-9);
}

/// The end of 10 steps of two layers that wanted 1,000 rows of 80 units each.
TraceEnd looked_after(double upkeep_seconds) {
  RecordedRun run{.decode_seconds = 0.1, .upkeep_seconds = upkeep_seconds};
  run.cache.rows_hit = 6'000;
  run.cache.rows_missed = 3'000;
  run.cache.rows_resident = 1'000;
  run.cache.blocks_hit = 300;
  run.cache.blocks_missed = 500;
  return {.layer_steps = 20, .steps = 10, .run = run};
}

TEST(RecordedCosts, TakeTheRecordedUpkeepOutOfComputeAndScaleThatOfOtherCachesByIt) {
  TraceHead head = made_up_head({.unit = TraceUnit::token, .layers = 2, .clusters = true});
  const CacheOptions clusters{.granularity = CacheGranularity::cluster};
  const UpkeepTable usual = usual_upkeep();
  for (const CacheOptions& recorded : {CacheOptions{}, clusters}) {
    head.cache = recorded;
    const StepCosts its = recorded_costs(head, looked_after(0.02), {}).value();
    EXPECT_NEAR(its.attend_seconds, (0.1 - 0.02) / 2, 1e-12);
    EXPECT_NEAR(its.upkeep.of(recorded).seconds(2, 1'000, 80), 0.02, 1e-12)
        << "a cache of the recorded units takes what was recorded";
    const double speed = 0.02 / usual.of(recorded).seconds(2, 1'000, 80);
    for (const CacheOptions& other : {CacheOptions{}, clusters, CacheOptions{.policy = "none"}}) {
      EXPECT_NEAR(its.upkeep.of(other).seconds(1, 7, 3), speed * usual.of(other).seconds(1, 7, 3),
                  1e-12);
    }
  }
}

TEST(RecordedCosts, HaveNoUpkeepWhereComputeHidTheRecordedOne) {
  TraceHead head = made_up_head({.layers = 2});
  head.cache = CacheOptions{};
  const StepCosts its = recorded_costs(head, looked_after(0), {}).value();
  EXPECT_NEAR(its.attend_seconds, 0.05, 1e-12);
  EXPECT_EQ(its.upkeep.clusters.seconds(1, 7, 3), 0);
}

TEST(RecordedCosts, WithoutACacheCountRowsAndTakeTheUsualHost) {
  TraceHead head = made_up_head({.layers = 2});
  head.cache.policy = "none";
  const StepCosts its = recorded_costs(head, looked_after(0), {}).value();
  const UpkeepTable usual = usual_upkeep();
  const double counting = usual.none.seconds(2, 1'000, 80);
  EXPECT_GT(counting, 0);
  EXPECT_NEAR(its.attend_seconds, (0.1 - counting) / 2, 1e-12);
  EXPECT_EQ(its.upkeep.blocks.unit_seconds, usual.blocks.unit_seconds);
  EXPECT_EQ(its.upkeep.clusters.row_seconds, usual.clusters.row_seconds);
}

}  // namespace
}  // namespace terrace::tuning
