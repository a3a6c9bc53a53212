// Faults: a step or a prompt whose copy or op fails returns the error, and the sequence goes on or
// says that it is lost. Nothing hangs, nothing leaks.
#include <gmock/gmock.h>

#include "runtime/faulty_runtime.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::FaultyRuntime;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;

struct Fault {
  Phase phase;
  CacheGranularity granularity = CacheGranularity::block;
};

class EachPhase : public ::testing::TestWithParam<Fault> {};

TEST_P(EachPhase, FailedStepCanBeRepeatedAndChangesNothing) {
  const auto [phase, granularity] = GetParam();
  Scenario scenario;
  if (granularity == CacheGranularity::cluster) scenario.runtime.policy = "wave";
  scenario.runtime.cache.granularity = granularity;
  scenario.runtime.cache.admission = "always";
  scenario.runtime.index_residency =
      phase == Phase::index ? IndexResidency::host : IndexResidency::device;
  const auto expected = outputs_of(scenario, 150, 30);
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  ASSERT_TRUE(drive.prefill(150).has_value());
  std::size_t failures = 0;
  for (std::uint64_t nth = 1; drive.outputs().size() < 30; ++nth) {
    faulty.faults->arm({.pieces = {{.phase = phase, .nth = 1 + nth % 5}}});
    const std::size_t length = drive.sequence().length();
    const Status done = drive.step();
    if (done) continue;
    ++failures;
    EXPECT_EQ(done.error().code, Errc::device_error) << done.error().message();
    ASSERT_EQ(drive.sequence().phase(), SequencePhase::idle);
    EXPECT_EQ(drive.sequence().length(), length);
    faulty.faults->arm({});
    drive.expect_all_rows_right();
    const Status again = drive.step();
    ASSERT_TRUE(again.has_value()) << again.error().message();
  }
  EXPECT_GT(failures, 0U) << "the fault never struck";
  EXPECT_EQ(drive.outputs(), expected);
  drive.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Step, EachPhase,
                         ::testing::Values(Fault{Phase::select}, Fault{Phase::fetch},
                                           Fault{Phase::attend}, Fault{Phase::update},
                                           Fault{Phase::offload}, Fault{Phase::refill},
                                           Fault{Phase::index},
                                           Fault{Phase::fetch, CacheGranularity::cluster},
                                           Fault{Phase::update, CacheGranularity::cluster},
                                           Fault{Phase::refill, CacheGranularity::cluster},
                                           Fault{Phase::fetch, CacheGranularity::row},
                                           Fault{Phase::attend, CacheGranularity::row},
                                           Fault{Phase::offload, CacheGranularity::row}),
                         [](const auto& fault) {
                           std::string name(to_string(fault.param.phase));
                           if (fault.param.granularity == CacheGranularity::cluster)
                             name += "_of_clusters";
                           if (fault.param.granularity == CacheGranularity::row) name += "_of_rows";
                           return name;
                         });

TEST(Faults, AFailedPromptCanBeGivenAgain) {
  const Scenario scenario;
  const auto expected = outputs_of(scenario, 300, 5);
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  faulty.faults->arm({.pieces = {{.phase = Phase::offload, .nth = 2}}});
  ASSERT_FALSE(drive.prefill(300).has_value());
  EXPECT_EQ(drive.sequence().phase(), SequencePhase::idle);
  EXPECT_EQ(drive.sequence().length(), 0U);
  faulty.faults->arm({});
  ASSERT_TRUE(drive.prefill(300).has_value());
  ASSERT_TRUE(drive.steps(5).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  drive.expect_all_rows_right();
}

TEST(Faults, FailedClusteringIsDoneAgain) {
  const Scenario scenario;
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  faulty.faults->arm({.pieces = {{.phase = Phase::cluster, .nth = 1}}});
  ASSERT_TRUE(drive.prefill(300).has_value());
  Status done = drive.step();
  ASSERT_FALSE(done.has_value());
  for (int i = 0; i < 3 && !done; ++i) done = drive.step();
  ASSERT_TRUE(done.has_value()) << done.error().message();
  ASSERT_TRUE(drive.steps(5).has_value());
  drive.expect_all_rows_right();
}

TEST(Faults, ATruncationThatCannotLoadItsWindowPausesTheSequence) {
  const Scenario scenario;
  const auto expected = outputs_of(scenario, 150, 60);
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  ASSERT_TRUE(drive.prefill(150).has_value());
  ASSERT_TRUE(drive.steps(60).has_value());
  faulty.faults->arm({.pieces = {{.phase = Phase::refill, .nth = 1}}});
  const Status cut = drive.sequence().truncate(160);
  ASSERT_FALSE(cut.has_value());
  EXPECT_THAT(std::string(cut.error().message()), ::testing::HasSubstr("resume"));
  ASSERT_EQ(drive.sequence().phase(), SequencePhase::paused);
  EXPECT_EQ(drive.sequence().length(), 160U);
  faulty.faults->arm({.pieces = {{.phase = Phase::refill, .nth = 1}}});
  EXPECT_FALSE(drive.sequence().resume().has_value());
  ASSERT_EQ(drive.sequence().phase(), SequencePhase::paused);
  faulty.faults->arm({});
  ASSERT_TRUE(drive.sequence().resume().has_value());
  drive.expect_all_rows_right();
  ASSERT_TRUE(drive.steps(50).has_value());
  for (std::size_t i = 0; i < 50; ++i) EXPECT_EQ(drive.outputs()[60 + i], expected[10 + i]) << i;
}

TEST(Faults, AForkThatFailsLeavesTheSequenceAsItWas) {
  const Scenario scenario;
  const auto expected = outputs_of(scenario, 150, 20);
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  ASSERT_TRUE(drive.prefill(150).has_value());
  ASSERT_TRUE(drive.steps(10).has_value());
  faulty.faults->arm({.pieces = {{.phase = Phase::refill, .nth = 1}}});
  EXPECT_FALSE(drive.sequence().fork().has_value());
  faulty.faults->arm({});
  ASSERT_TRUE(drive.steps(10).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  drive.expect_all_rows_right();
}

TEST(Faults, ATruncationForgetsWhatWasNotCoded) {
  for (const std::string policy : {"pqcache", "quest", "wave"}) {
    Scenario scenario;
    scenario.runtime.policy = policy;
    const auto expected = outputs_of(scenario, 150, 60);
    std::size_t truncated = 0;
    for (std::uint64_t nth = 1; nth < 12; ++nth) {
      FaultyRuntime faulty(scenario);
      const Traffic traffic(scenario.runtime.shape, 1);
      Drive drive(*faulty.runtime, traffic);
      ASSERT_TRUE(drive.prefill(150).has_value());
      ASSERT_TRUE(drive.steps(40).has_value());
      // Some of these faults hit the coding after the step.
      faulty.faults->arm({.pieces = {{.phase = Phase::update, .nth = nth}}});
      for (int i = 0; i < 5; ++i) {
        if (!drive.step()) break;
        ASSERT_TRUE(drive.sequence().truncate(drive.sequence().length() - 1).has_value());
        ++truncated;
      }
      faulty.faults->arm({});
      const std::size_t before = drive.outputs().size();
      ASSERT_EQ(drive.sequence().length(), 190U);
      ASSERT_TRUE(drive.steps(20).has_value()) << policy << nth;
      for (std::size_t i = 0; i < 20; ++i) {
        EXPECT_EQ(drive.outputs()[before + i], expected[40 + i])
            << policy << " " << nth << " " << i;
      }
    }
    EXPECT_GT(truncated, 0U);
  }
}

TEST(Faults, EveryRefusedAllocationIsAnErrorAndLeavesTheSequenceAsItWas) {
  const Scenario scenario;
  for (std::uint64_t nth = 1;; ++nth) {
    ASSERT_LT(nth, 200U);
    FaultyRuntime faulty(scenario);
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*faulty.runtime, traffic);
    faulty.faults->arm({.allocation_nth = nth});
    const Status refused = drive.prefill(100);
    if (refused && faulty.faults->counters().allocations_failed == 0) break;
    if (!refused) {
      EXPECT_EQ(refused.error().code, Errc::out_of_memory);
      ASSERT_EQ(drive.sequence().phase(), SequencePhase::idle);
      ASSERT_EQ(drive.sequence().length(), 0U);
    }
    faulty.faults->arm({});
    if (!refused) {
      ASSERT_TRUE(drive.prefill(100).has_value());
    }
    const Status stepped = drive.steps(3);
    ASSERT_TRUE(stepped.has_value()) << "allocation " << nth << ": " << stepped.error().message();
    drive.expect_all_rows_right();
  }
}

TEST(Faults, RandomFaultsAndDelaysNeverLoseATokenOrChangeABit) {
  Scenario scenario;
  scenario.runtime.cache.admission = "always";
  const auto expected = outputs_of(scenario, 120, 40);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    FaultyRuntime faulty(scenario);
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*faulty.runtime, traffic);
    ASSERT_TRUE(drive.prefill(120).has_value());
    std::size_t tries = 0;
    while (drive.outputs().size() < 40) {
      ASSERT_LT(++tries, 2000U);
      faulty.faults->arm({.piece_probability = 0.01,
                          .seed = seed * 1000 + tries,
                          .delay = std::chrono::microseconds(50),
                          .delay_phase = Phase::offload});
      static_cast<void>(drive.step());
      ASSERT_EQ(drive.sequence().phase(), SequencePhase::idle);
    }
    faulty.faults->arm({});
    EXPECT_EQ(drive.outputs(), expected) << "seed " << seed;
    drive.expect_all_rows_right();
  }
}

TEST(Faults, ADelayBeyondTheDeadlineIsAnErrorNotAHang) {
  Scenario scenario;
  scenario.runtime.deadline = std::chrono::milliseconds(500);
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  ASSERT_TRUE(drive.prefill(40).has_value());
  faulty.faults->arm({.delay = std::chrono::milliseconds(1200), .delay_phase = Phase::offload});
  const Status done = drive.step();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().code, Errc::not_ready) << done.error().message();
  faulty.faults->arm({});
  EXPECT_EQ(drive.sequence().length(), 40U);
  const SequencePhase phase = drive.sequence().phase();
  ASSERT_TRUE(phase == SequencePhase::idle || phase == SequencePhase::lost);
  EXPECT_EQ(drive.begin_step()->status(0).has_value(), phase == SequencePhase::idle);
}

TEST(Faults, LifeThatFailedLeavesNoMemoryBehind) {
  const Scenario scenario;
  FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  const auto in_use = [&] {
    const Backend& backend = faulty.runtime->backend();
    return std::pair(backend.memory(Tier::device).in_use, backend.memory(Tier::host).in_use);
  };
  {
    Drive drive(*faulty.runtime, traffic);
    ASSERT_TRUE(drive.prefill(150).has_value());
    ASSERT_TRUE(drive.steps(20).has_value());
  }
  const auto after_a_whole_life = in_use();
  std::size_t failures = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Drive drive(*faulty.runtime, traffic);
    faulty.faults->arm({.piece_probability = 0.02, .seed = seed});
    Status done = drive.prefill(150);
    if (done) done = drive.steps(20);
    if (!done) ++failures;
    faulty.faults->arm({});
  }
  EXPECT_GT(failures, 10U);
  EXPECT_EQ(in_use(), after_a_whole_life);
}

TEST(Memory, TooLittleForTheWindowIsOneLineThatSaysWhatToDo) {
  Scenario scenario;
  scenario.backend.device_memory_limit = 4096;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  const Status refused = drive.prefill(100);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_THAT(std::string(refused.error().message()), ::testing::HasSubstr("device.memory"));
  EXPECT_EQ(drive.sequence().phase(), SequencePhase::idle);
}

TEST(Memory, ExhaustedHostPoolIsOneLineThatNamesTheKey) {
  Scenario scenario;
  scenario.backend.host_memory_limit = 8192;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  const Status refused = drive.prefill(1000);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_THAT(std::string(refused.error().message()), ::testing::HasSubstr("host.memory"));
}

}  // namespace
}  // namespace terrace
