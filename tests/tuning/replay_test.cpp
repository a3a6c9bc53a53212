// Replaying a recorded run gives its counters, with any policy; and a replay with other options
// gives the counters of a run with these options.
#include "terrace/tuning/replay.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <utility>

#include "core/temporary_folder.hpp"
#include "policies/selecting_policies.hpp"
#include "terrace/tuning/optimum.hpp"
#include "terrace/tuning/recorder.hpp"
#include "tuning/made_up_trace.hpp"
#include "tuning/recorded_scenario.hpp"

namespace terrace::tuning {
namespace {

constexpr std::size_t prompt = 300;
constexpr std::size_t step_count = 40;

struct Recording {
  std::vector<SequenceCounters> counters;
  std::size_t selected = 0;
};

/// Decodes sequences in turn, recorded; then does to each what `finish` says.
Recording record(
    Scenario scenario, const std::filesystem::path& file, std::size_t sequences = 1,
    const std::function<void(Drive&)>& finish = [](Drive&) {}) {
  TraceRecorder recorder(TraceWriter::create(file, head_of(scenario)).value());
  scenario.runtime.observer = &recorder;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Recording recording;
  std::vector<std::unique_ptr<Drive>> drives;
  for (std::size_t i = 0; i < sequences; ++i) {
    drives.push_back(std::make_unique<Drive>(*runtime, traffic));
    EXPECT_TRUE(drives.back()->prefill(prompt + 10 * i).has_value());
    drives.back()->sequence().reset_counters();
    EXPECT_TRUE(drives.front()->steps(3).has_value());
  }
  for (std::size_t step = 0; step < step_count; ++step) {
    for (const auto& drive : drives) EXPECT_TRUE(drive->step().has_value());
  }
  for (const auto& drive : drives) {
    finish(*drive);
    recording.counters.push_back(drive->sequence().counters());
    recording.selected = drive->sequence().selected_tokens();
  }
  EXPECT_TRUE(recorder.finish(std::nullopt).has_value());
  return recording;
}

SequenceCounters total(const Recording& recording) {
  SequenceCounters sum;
  for (const SequenceCounters& one : recording.counters) add(one, sum);
  return sum;
}

TEST(Replay, GivesTheCountersOfTheLiveRunUnderEveryPolicy) {
  const TemporaryFolder folder;
  for (const auto& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    for (const char* const admission : {"always", "refill"}) {
      SCOPED_TRACE(std::string(entry.name) + " " + admission);
      const CacheOptions cache{
          .policy = std::string(entry.name), .admission = admission, .tokens = 96};
      const Recording live = record(recorded_scenario(cache), folder / "t");
      expect_equal(replay_of(folder / "t", {.cache = cache}), total(live));
    }
  }
}

TEST(Replay, PredictsARunWithAnotherCacheAndBlockSize) {
  const TemporaryFolder folder;
  record(recorded_scenario({.tokens = 96}), folder / "t");
  for (const std::size_t block_tokens : {4U, 8U, 16U, 32U}) {
    for (const std::size_t tokens : {0U, 32U, 64U, 200U}) {
      for (const char* const policy : {"lfu", "arc", "none"}) {
        SCOPED_TRACE(std::string(policy) + " " + std::to_string(tokens) + " in blocks of " +
                     std::to_string(block_tokens));
        Scenario other = recorded_scenario({.policy = policy, .tokens = tokens});
        other.runtime.block_tokens = block_tokens;
        const Recording live = record(other, folder / "other");
        expect_equal(
            replay_of(folder / "t", {.cache = other.runtime.cache, .block_tokens = block_tokens}),
            total(live));
      }
    }
  }
}

TEST(Replay, FollowsSequencesThatShareACacheByTheDeal) {
  const TemporaryFolder folder;
  const CacheOptions cache{.policy = "lru", .tokens = 160, .sequence_tokens = 72};
  const Recording live = record(recorded_scenario(cache), folder / "t", 3);
  expect_equal(replay_of(folder / "t", {.cache = cache}), total(live));
}

/// Prompts that follow each other without a step, and one that is cut before its first.
void prompt_in_pieces(Drive& drive) {
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.prefill(prompt + 50).has_value());
  ASSERT_TRUE(drive.prefill(prompt + 55).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  const std::size_t length = drive.sequence().length();
  ASSERT_TRUE(drive.prefill(length + 400).has_value());
  ASSERT_TRUE(drive.prefill(length + 500).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
}

/// A sequence's life from its first prompt on, recorded.
SequenceCounters record_life(Scenario scenario, const std::filesystem::path& file,
                             void (*life)(Drive&)) {
  TraceRecorder recorder(TraceWriter::create(file, head_of(scenario)).value());
  scenario.runtime.observer = &recorder;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  life(drive);
  EXPECT_TRUE(recorder.finish(std::nullopt).has_value());
  return drive.sequence().counters();
}

void expect_follows(const Scenario& scenario, const std::filesystem::path& file,
                    void (*life)(Drive&)) {
  const SequenceCounters live = record_life(scenario, file, life);
  expect_equal(replay_of(file, {.cache = scenario.runtime.cache}), live);
  EXPECT_GT(live.cache.adopted, 0U);
}

void expect_follows_with_any_cache(void (*life)(Drive&)) {
  const TemporaryFolder folder;
  for (const std::size_t tokens : {32U, 96U, 400U}) {
    SCOPED_TRACE(tokens);
    expect_follows(recorded_scenario({.admission = "always", .tokens = tokens}), folder / "t",
                   life);
  }
}

TEST(Replay, FollowsPromptsWithoutAStepBetweenThem) {
  expect_follows_with_any_cache(prompt_in_pieces);
}

TEST(Replay, FollowsASequenceThatIsCut) {
  const TemporaryFolder folder;
  for (const char* const policy : {"lru", "s3fifo", "arc"}) {
    const CacheOptions cache{.policy = policy, .admission = "always", .tokens = 96};
    const Scenario scenario = recorded_scenario(cache);
    const auto cut = [](Drive& drive) {
      ASSERT_TRUE(drive.sequence().truncate(prompt).has_value());
      ASSERT_TRUE(drive.steps(step_count).has_value());
    };
    const Recording live = record(scenario, folder / "t", 1, cut);
    expect_equal(replay_of(folder / "t", {.cache = cache}), total(live));
    Scenario other = scenario;
    other.runtime.cache.tokens = 64;
    EXPECT_EQ(replay_of(folder / "t", {.cache = other.runtime.cache}).cache.adopted,
              total(record(other, folder / "other", 1, cut)).cache.adopted);
  }
}

/// Forks, pauses, resumes and closes sequences in turn, recorded; `cuts` and prefills one, too.
Recording record_lives(Scenario scenario, const std::filesystem::path& file, bool cuts) {
  TraceRecorder recorder(TraceWriter::create(file, head_of(scenario)).value());
  scenario.runtime.observer = &recorder;
  constexpr std::size_t between = 12;  // steps from one event to the next
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Recording recording;
  Drive first(*runtime, traffic);
  EXPECT_TRUE(first.prefill(prompt).has_value());
  first.sequence().reset_counters();
  EXPECT_TRUE(first.steps(between).has_value());
  for (std::size_t round = 0; round < 3; ++round) {
    auto forked = first.sequence().fork();
    EXPECT_TRUE(forked.has_value());
    Drive twin(std::move(*forked), *runtime, traffic);
    EXPECT_TRUE(twin.steps(between).has_value());
    const bool pauses = round != 0;
    EXPECT_TRUE(!pauses || first.sequence().pause().has_value());
    EXPECT_TRUE(twin.steps(between).has_value());
    EXPECT_TRUE(!pauses || first.sequence().resume().has_value());
    if (cuts && round == 2) {
      EXPECT_TRUE(twin.sequence().truncate(prompt - 50).has_value());
      EXPECT_TRUE(twin.prefill(prompt + 100).has_value());
    }
    for (std::size_t step = 0; step < between; ++step) {
      EXPECT_TRUE(twin.step().has_value());
      EXPECT_TRUE(first.step().has_value());
    }
    recording.counters.push_back(twin.sequence().counters());
  }
  recording.counters.push_back(first.sequence().counters());
  EXPECT_TRUE(recorder.finish(std::nullopt).has_value());
  return recording;
}

TEST(Replay, GivesTheCountersOfALiveRunThatCachesClusters) {
  const TemporaryFolder folder;
  for (const std::string& retrieval : testing::clustering_policies()) {
    for (const auto& entry : policies::replacement_policies()) {
      if (entry.needs_foresight) continue;
      for (const char* const admission : {"always", "refill"}) {
        SCOPED_TRACE(retrieval + " " + std::string(entry.name) + " " + admission);
        const CacheOptions cache{.policy = std::string(entry.name),
                                 .admission = admission,
                                 .granularity = CacheGranularity::cluster,
                                 .tokens = 96};
        const Recording live = record(clustered_scenario(retrieval, cache), folder / "t");
        const SequenceCounters counted = total(live);
        expect_equal(replay_of(folder / "t", {.cache = cache}), counted);
        EXPECT_GT(counted.cache.rows_hit + counted.cache.refused, 0U);
      }
    }
  }
}

TEST(Replay, PredictsARunThatCachesClustersInAnotherCache) {
  const TemporaryFolder folder;
  constexpr auto clusters = CacheGranularity::cluster;
  record(clustered_scenario("clusterkv", {.granularity = clusters, .tokens = 96}), folder / "t");
  for (const std::size_t tokens : {0U, 48U, 400U}) {
    for (const char* const policy : {"lfu", "arc", "none"}) {
      SCOPED_TRACE(std::string(policy) + " " + std::to_string(tokens));
      const CacheOptions cache{
          .policy = policy, .admission = "always", .granularity = clusters, .tokens = tokens};
      const Recording live = record(clustered_scenario("clusterkv", cache), folder / "other");
      expect_equal(replay_of(folder / "t", {.cache = cache}), total(live));
    }
  }
}

/// A recorded run, and what it says of others of its policy.
class RecordedRunOf {
 public:
  RecordedRunOf(const std::string& retrieval, const CacheOptions& cache, std::size_t sequences = 1)
      : retrieval_(retrieval), sequences_(sequences) {
    record(clustered_scenario(retrieval_, cache), folder_ / "t", sequences_);
  }

  void expect_predicts(const CacheOptions& cache) {
    SCOPED_TRACE(fmt::format("{} {} {} {} of {}", retrieval_, cache.policy, cache.admission,
                             to_string(cache.granularity), cache.tokens));
    const Recording live =
        record(clustered_scenario(retrieval_, cache), folder_ / "other", sequences_);
    expect_equal(replay_of(folder_ / "t", {.cache = cache}), total(live));
  }

 private:
  TemporaryFolder folder_;
  std::string retrieval_;
  std::size_t sequences_;
};

constexpr std::pair<CacheGranularity, CacheGranularity> either_way[] = {
    {CacheGranularity::block, CacheGranularity::cluster},
    {CacheGranularity::cluster, CacheGranularity::block},
};

TEST(Replay, PredictsARunOfTheOtherGranularity) {
  for (const std::string& retrieval : testing::clustering_policies()) {
    for (const auto& [recorded, asked] : either_way) {
      RecordedRunOf run(retrieval, {.granularity = recorded, .tokens = 96});
      for (const auto& entry : policies::replacement_policies()) {
        if (entry.needs_foresight) continue;
        for (const char* const admission : {"always", "refill"}) {
          run.expect_predicts({.policy = std::string(entry.name),
                               .admission = admission,
                               .granularity = asked,
                               .tokens = 128});
        }
      }
    }
  }
}

TEST(Replay, PredictsSequencesThatShareACacheOfTheOtherGranularity) {
  for (const auto& [recorded, asked] : either_way) {
    RecordedRunOf run("wave", {.granularity = recorded, .tokens = 160}, 3);
    run.expect_predicts({.admission = "always", .granularity = asked, .tokens = 200});
  }
}

TEST(Replay, PredictsACacheFromARunWithoutOne) {
  RecordedRunOf run("clusterkv", {.policy = "none"});
  for (const auto granularity : {CacheGranularity::block, CacheGranularity::cluster}) {
    run.expect_predicts({.admission = "always", .granularity = granularity, .tokens = 96});
  }
}

TEST(Replay, PredictsSequencesThatAreForkedAndPausedWithTheOtherGranularity) {
  const TemporaryFolder folder;
  for (const std::string& retrieval : testing::clustering_policies()) {
    for (const auto& [recorded, asked] : either_way) {
      SCOPED_TRACE(retrieval + " " + std::string(to_string(asked)));
      const CacheOptions cache{.admission = "always", .granularity = asked, .tokens = 160};
      const SequenceCounters live =
          total(record_lives(clustered_scenario(retrieval, cache), folder / "t", false));
      record_lives(clustered_scenario(retrieval, {.granularity = recorded, .tokens = 96}),
                   folder / "t", false);
      expect_equal(replay_of(folder / "t", {.cache = cache}), live);
      EXPECT_GT(live.cache.rows_hit, 0U);
    }
  }
}

TEST(Replay, GivesTheCountersOfALiveRunThatCachesRows) {
  for (const char* const retrieval : {"oracle", "pqcache", "wave", "signs"}) {
    for (const std::size_t tokens : {std::size_t{8}, std::size_t{64}, std::size_t{4096}}) {
      const CacheOptions cache{.granularity = CacheGranularity::row, .tokens = tokens};
      RecordedRunOf(retrieval, cache).expect_predicts(cache);
    }
  }
}

TEST(Replay, PredictsACacheOfRowsFromRunsOfOtherUnitsAndTheseFromRows) {
  const CacheOptions rows{.granularity = CacheGranularity::row, .tokens = 64};
  for (const CacheOptions& recorded :
       {CacheOptions{.policy = "none"}, CacheOptions{.tokens = 96},
        CacheOptions{.granularity = CacheGranularity::cluster, .tokens = 96}}) {
    RecordedRunOf("wave", recorded).expect_predicts(rows);
    RecordedRunOf("wave", rows).expect_predicts(recorded);
  }
}

TEST(Replay, PredictsSequencesThatShareACacheOfRows) {
  RecordedRunOf run("oracle", {.tokens = 160}, 3);
  run.expect_predicts({.granularity = CacheGranularity::row, .tokens = 200});
}

TEST(Replay, FollowsSequencesThatAreForkedPausedAndCutWithACacheOfRows) {
  const TemporaryFolder folder;
  const CacheOptions cache{.granularity = CacheGranularity::row, .tokens = 160};
  const SequenceCounters live =
      total(record_lives(clustered_scenario("oracle", cache), folder / "t", true));
  expect_equal(replay_of(folder / "t", {.cache = cache}), live);
  EXPECT_GT(live.cache.rows_hit, 0U);
  EXPECT_GT(live.cache.evicted, 0U);
  const SequenceCounters uncut =
      total(record_lives(clustered_scenario("oracle", cache), folder / "t", false));
  record_lives(clustered_scenario("oracle", {.tokens = 96}), folder / "t", false);
  expect_equal(replay_of(folder / "t", {.cache = cache}), uncut);
}

TEST(Replay, FollowsSequencesThatShareACacheOfClusters) {
  const TemporaryFolder folder;
  const CacheOptions cache{.policy = "lru",
                           .admission = "always",
                           .granularity = CacheGranularity::cluster,
                           .tokens = 160};
  const Recording live = record(clustered_scenario("clusterkv", cache), folder / "t", 3);
  expect_equal(replay_of(folder / "t", {.cache = cache}), total(live));
}

TEST(Replay, FollowsSequencesThatAreForkedPausedResumedAndClosed) {
  const TemporaryFolder folder;
  for (const char* const retrieval : {"oracle", "clusterkv"}) {
    for (const auto& entry : policies::replacement_policies()) {
      if (entry.needs_foresight) continue;
      SCOPED_TRACE(std::string(retrieval) + " " + std::string(entry.name));
      const bool clusters = std::string_view(retrieval) == "clusterkv";
      const CacheOptions cache{
          .policy = std::string(entry.name),
          .admission = "always",
          .granularity = clusters ? CacheGranularity::cluster : CacheGranularity::block,
          .tokens = 160};
      const Scenario scenario =
          clusters ? clustered_scenario(retrieval, cache) : recorded_scenario(cache);
      const Recording live = record_lives(scenario, folder / "t", true);
      expect_equal(replay_of(folder / "t", {.cache = cache}), total(live));
      EXPECT_GT(total(live).cache.rows_hit, 0U);
    }
  }
}

TEST(Replay, PredictsSequencesThatAreForkedAndPausedInAnotherCache) {
  const TemporaryFolder folder;
  const auto record_with = [&](const CacheOptions& cache, std::size_t block_tokens) {
    Scenario scenario = recorded_scenario(cache);
    scenario.runtime.block_tokens = block_tokens;
    return total(record_lives(scenario, folder / "t", false));
  };
  for (const std::size_t block_tokens : {8U, 16U}) {
    const CacheOptions cache{.policy = "arc", .admission = "always", .tokens = 96};
    SequenceCounters live = record_with(cache, block_tokens);
    record_with({.policy = "lru", .admission = "always", .tokens = 160}, 8);
    ReplayOutcome replayed =
        replay_of(folder / "t", {.cache = cache, .block_tokens = block_tokens});
    // The bytes that resuming loads are as recorded: in blocks of that size.
    if (block_tokens != 8) replayed.bytes.refill = live.bytes.refill = 0;
    expect_equal(replayed, live);
  }
}

TEST(Replay, HoldsNothingOfSequencesThatAreClosed) {
  TraceHead head = made_up_head({});
  head.placement = Placement::resident_first;
  auto cutter = TrafficCutter::create(head, head.recorded()).value();
  OptimumBound bound(head, head.cache.granularity);
  auto replay =
      CacheReplay::create(head, {.cache = {.admission = "always"}, .costs = StepCosts{}}).value();
  const auto apply = [&](const TraceRecord& record) {
    replay.apply(record, cutter.cut(record));
    bound.add(record, cutter.cut(record));
  };
  TraceRecord step{.position = 100, .units = {{.unit = 3, .rows = 5}}};
  const auto decode = [&] {
    apply(step);
    apply({.kind = TraceRecord::Kind::step_end, .sequence = step.sequence});
  };
  decode();
  const double once = replay.outcome().seconds;
  apply({.kind = TraceRecord::Kind::close});
  EXPECT_DOUBLE_EQ(replay.outcome().seconds, once) << "its time stays";
  decode();
  EXPECT_EQ(replay.outcome().cache.rows_hit, 0U);
  EXPECT_EQ(bound.rows_hit(100), 0) << "another sequence's unit of that number";
  EXPECT_DOUBLE_EQ(replay.outcome().seconds, 2 * once);
  decode();
  EXPECT_EQ(replay.outcome().cache.rows_hit, 5U);
  EXPECT_EQ(bound.rows_hit(100), 5);
}

TEST(Replay, NeverMovesMoreThanNoCacheWouldWherePaid) {
  const TemporaryFolder folder;
  for (const double stays : {0.2, 0.8, 0.99}) {
    write_made_up(folder / "t", {.unit = TraceUnit::cluster, .steps = 300, .stays = stays});
    const auto none = replay_of(folder / "t", {.cache = {.policy = "none"}});
    for (const auto& entry : policies::replacement_policies()) {
      if (entry.needs_foresight) continue;
      for (const std::size_t tokens : {8U, 64U, 256U, 1024U}) {
        const auto with = replay_of(
            folder / "t", {.cache = {.policy = std::string(entry.name), .tokens = tokens}});
        EXPECT_LE(with.bytes.demand + with.bytes.refill, none.bytes.demand);
      }
    }
  }
}

TEST(Replay, RefusesOptionsThatCannotBe) {
  const TraceHead head = made_up_head({});
  EXPECT_FALSE(CacheReplay::create(head, {.cache = {.policy = "lur"}}));
  EXPECT_FALSE(CacheReplay::create(head, {.cache = {.policy = "belady"}}));
}

TEST(TrafficCutter, RefusesUnitsThatTheTraceCannotServe) {
  constexpr auto cluster = CacheGranularity::cluster;
  const auto refused = [](const MadeUp& made, const CacheUnit& unit) {
    const auto cutter = TrafficCutter::create(made_up_head(made), unit);
    return cutter ? std::string("nothing") : std::string(cutter.error().message());
  };
  const MadeUp tokens{.unit = TraceUnit::token};
  const MadeUp both{.unit = TraceUnit::token, .clusters = true};
  EXPECT_EQ(refused(both, {.block_tokens = 16}), "nothing");
  EXPECT_EQ(refused(both, {cluster, 8}), "nothing");
  for (const MadeUp& made : {tokens, MadeUp{.unit = TraceUnit::cluster}}) {
    EXPECT_THAT(refused(made, {cluster, 8}), ::testing::HasSubstr("no clusters to cache"));
  }
  EXPECT_THAT(refused(both, {cluster, 16}),
              ::testing::HasSubstr(
                  "has clusters in blocks of 8 tokens and cannot serve clusters in blocks of 16"));
  EXPECT_THAT(refused({}, {.block_tokens = 16}),
              ::testing::HasSubstr("has blocks of 8 tokens and cannot serve blocks of 16"));
}

}  // namespace
}  // namespace terrace::tuning
