// A recorder that an embedder opens in one call.
#include "terrace/tuning/recorder.hpp"

#include <gmock/gmock.h>

#include "core/temporary_folder.hpp"
#include "terrace/tuning/tuner.hpp"
#include "tuning/recorded_scenario.hpp"

namespace terrace::tuning {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

/// Decodes a sequence of a recorded runtime, and returns its counters.
SequenceCounters record(Scenario scenario, TraceRecorder& recorder) {
  scenario.runtime.observer = &recorder;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(300).has_value());
  drive.sequence().reset_counters();
  EXPECT_TRUE(drive.steps(40).has_value());
  return drive.sequence().counters();
}

TEST(TraceRecorder, OpenedInOneCallRecordsWhatReplayRepeats) {
  const TemporaryFolder folder;
  for (const char* const policy : {"oracle", "pqcache", "wave"}) {
    SCOPED_TRACE(policy);
    const Scenario scenario = clustered_scenario(policy, {.policy = "lru", .tokens = 96});
    auto recorder = TraceRecorder::open(folder / "t", {.runtime = scenario.runtime});
    ASSERT_TRUE(recorder.has_value()) << recorder.error().message();
    const SequenceCounters live = record(scenario, **recorder);
    ASSERT_TRUE((*recorder)->finish({}).has_value());
    ASSERT_TRUE(check_trace(folder / "t").has_value());
    expect_same_cache(replay_of(folder / "t", {.cache = scenario.runtime.cache}), live);
  }
}

TEST(TraceRecorder, SaysInTheHeadWhatTheRuntimeWasTold) {
  const TemporaryFolder folder;
  const Scenario scenario = clustered_scenario("wave", {.tokens = 96});
  Config config;
  ASSERT_TRUE(config.set("retrieval.budget", "60", {ConfigOrigin::flag, "--set"}).has_value());
  const auto recorder = TraceRecorder::open(folder / "t", {.runtime = scenario.runtime,
                                                           .config = config,
                                                           .context_tokens = 300,
                                                           .source = "engine",
                                                           .weight_bytes = 7})
                            .value();
  ASSERT_TRUE(recorder->finish({}).has_value());
  const auto reader = TraceReader::open(folder / "t").value();
  const TraceHead& head = reader.head();
  EXPECT_EQ(head.source, "engine");
  EXPECT_EQ(head.policy, "wave");
  EXPECT_EQ(head.budget, "60");
  EXPECT_EQ(head.weight_bytes, 7U);
  EXPECT_EQ(head.context_tokens, 300U);
  EXPECT_EQ(head.shape, scenario.runtime.shape);
  EXPECT_EQ(head.sink_tokens + head.window_tokens + head.selected_tokens + 1, 60U);
  EXPECT_EQ(head.cache, scenario.runtime.cache);
  EXPECT_TRUE(head.has_clusters());
  EXPECT_THAT(head.settings, ::testing::ElementsAre(Pair("retrieval.budget", "60")));
}

TEST(TraceRecorder, WritesABudgetThatAConfigTakes) {
  const TemporaryFolder folder;
  for (const char* const text : {"0.25", "1.0", "2048", "mass:0.95", "mass:1.0"}) {
    SCOPED_TRACE(text);
    Scenario scenario = recorded_scenario({});
    scenario.runtime.policy = "wave";
    scenario.runtime.budget = parse_token_budget(text).value();
    ASSERT_TRUE(TraceRecorder::open(folder / "t", {.runtime = scenario.runtime})
                    .value()
                    ->finish({})
                    .has_value());
    const std::string budget = TraceReader::open(folder / "t").value().head().budget;
    EXPECT_EQ(budget, text);
  }
}

TEST(TraceRecorder, RefusesAPolicyThatSelectsNothing) {
  const TemporaryFolder folder;
  Scenario scenario = recorded_scenario({});
  scenario.runtime.policy = "full";
  const auto refused = TraceRecorder::open(folder / "t", {.runtime = scenario.runtime});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("full"));
}

TEST(TraceRecorder, LeavesNoFileUnlessItIsFinished) {
  const TemporaryFolder folder;
  {
    const auto recorder =
        TraceRecorder::open(folder / "t", {.runtime = recorded_scenario({}).runtime});
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "t"));
}

}  // namespace
}  // namespace terrace::tuning
