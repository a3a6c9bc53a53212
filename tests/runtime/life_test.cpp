// Rolling back, pausing and forking: the sequence goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/seed.hpp"
#include "offload/product_threads.hpp"
#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"
#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

class EachIndexResidency : public ::testing::TestWithParam<IndexResidency> {
 protected:
  Scenario scenario_ = [] {
    Scenario scenario;
    scenario.runtime.index_residency = GetParam();
    scenario.runtime.cache.admission = "always";
    return scenario;
  }();
  std::unique_ptr<Runtime> runtime_ = scenario_.open();
  Traffic traffic_{scenario_.runtime.shape, 1};
};

TEST_P(EachIndexResidency, TruncatedSequenceRepeatsItsSteps) {
  Drive drive(*runtime_, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(40).has_value());
  ASSERT_TRUE(drive.sequence().truncate(210).has_value());
  EXPECT_EQ(drive.sequence().length(), 210U);
  drive.expect_all_rows_right();
  ASSERT_TRUE(drive.steps(30).has_value());
  drive.expect_all_rows_right();
  const std::vector<StepOutput>& outputs = drive.outputs();
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(outputs[40 + i], outputs[10 + i]) << i;
}

TEST_P(EachIndexResidency, TruncatedPromptKeepsItsRows) {
  Drive drive(*runtime_, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  for (const std::size_t length : {150U, 49U, 3U, 0U}) {
    ASSERT_TRUE(drive.sequence().truncate(length).has_value());
    drive.expect_all_rows_right();
    ASSERT_TRUE(drive.steps(2).has_value());
    ASSERT_TRUE(drive.sequence().truncate(length).has_value());
  }
}

TEST_P(EachIndexResidency, PausedSequenceHoldsNoDeviceMemoryAndGoesOnAfterResume) {
  const auto expected = outputs_of(scenario_, 200, 20);
  Drive drive(*runtime_, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(10).has_value());
  const std::size_t running = runtime_->backend().memory(Tier::device).in_use;
  ASSERT_TRUE(drive.sequence().pause().has_value());
  EXPECT_LT(runtime_->backend().memory(Tier::device).in_use, running);
  EXPECT_FALSE(drive.begin_step()->status(0).has_value());
  ASSERT_TRUE(drive.sequence().resume().has_value());
  drive.expect_all_rows_right();
  ASSERT_TRUE(drive.steps(10).has_value());
  EXPECT_EQ(drive.outputs(), expected);
}

TEST_P(EachIndexResidency, ForkedSequencesGoTheirOwnWays) {
  const auto expected = outputs_of(scenario_, 203, 40);
  Drive trunk(*runtime_, traffic_);
  ASSERT_TRUE(trunk.prefill(203).has_value());
  ASSERT_TRUE(trunk.steps(10).has_value());
  const std::size_t host = runtime_->backend().memory(Tier::host).in_use;
  auto forked = trunk.sequence().fork();
  ASSERT_TRUE(forked.has_value()) << forked.error().message();
  EXPECT_LT(runtime_->backend().memory(Tier::host).in_use, 2 * host) << "pages are shared";
  Drive branch(std::move(*forked), *runtime_, traffic_);
  // In turn, so that each writes into what the other shares.
  for (int i = 0; i < 30; ++i) {
    ASSERT_TRUE(branch.step().has_value());
    if (i % 2 == 0) {
      ASSERT_TRUE(trunk.step().has_value());
    }
  }
  branch.expect_all_rows_right();
  trunk.expect_all_rows_right();
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(branch.outputs()[i], expected[10 + i]) << i;
  for (std::size_t i = 0; i < 25; ++i) EXPECT_EQ(trunk.outputs()[i], expected[i]) << i;
}

TEST_P(EachIndexResidency, SecondPromptContinuesTheSequence) {
  Drive drive(*runtime_, traffic_);
  ASSERT_TRUE(drive.prefill(100).has_value());
  ASSERT_TRUE(drive.steps(7).has_value());
  ASSERT_TRUE(drive.prefill(300).has_value());
  EXPECT_EQ(drive.sequence().length(), 300U);
  drive.expect_all_rows_right();
  ASSERT_TRUE(drive.steps(20).has_value());
  drive.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Index, EachIndexResidency,
                         ::testing::Values(IndexResidency::device, IndexResidency::host),
                         [](const auto& residency) {
                           return residency.param == IndexResidency::device ? "Device" : "Host";
                         });

TEST(SecondPrompt, ExtendsTheOraclesIndexAsIfBuiltAtOnce) {
  Scenario scenario;
  scenario.runtime.policy = "oracle";
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive at_once(*runtime, traffic);
  ASSERT_TRUE(at_once.prefill(250).has_value());
  Drive in_parts(*runtime, traffic);
  ASSERT_TRUE(in_parts.prefill(80).has_value());
  ASSERT_TRUE(in_parts.prefill(81).has_value());
  ASSERT_TRUE(in_parts.prefill(250).has_value());
  ASSERT_TRUE(at_once.steps(20).has_value());
  ASSERT_TRUE(in_parts.steps(20).has_value());
  EXPECT_EQ(in_parts.outputs(), at_once.outputs());
}

class EachRetrieval : public testing::OfEachPolicy {};

TEST_P(EachRetrieval, TakesASecondPromptWhileTheFirstOneIsIndexed) {
  const Traffic traffic(scenario_.runtime.shape, 1);
  std::vector<std::vector<StepOutput>> outputs;
  for (const bool waits : {true, false}) {
    const auto runtime = scenario_.open();
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(400).has_value());
    if (waits) {
      ASSERT_TRUE(drive.sequence().clustering().has_value());
    }
    ASSERT_TRUE(drive.prefill(420).has_value());
    ASSERT_TRUE(drive.steps(10).has_value());
    drive.expect_all_rows_right();
    outputs.push_back(drive.outputs());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_P(EachRetrieval, IndexesASecondPromptAlikeOnAnyNumberOfThreads) {
  const Traffic traffic(scenario_.runtime.shape, 1);
  std::vector<std::vector<StepOutput>> outputs;
  for (const std::size_t threads : {1U, 3U}) {
    scenario_.runtime.host_threads = threads;
    const auto runtime = scenario_.open();
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(400).has_value());
    ASSERT_TRUE(drive.prefill(2500).has_value());  // over the end of a segment
    ASSERT_TRUE(drive.steps(10).has_value());
    outputs.push_back(drive.outputs());
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

INSTANTIATE_TEST_SUITE_P(Table, EachRetrieval, ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

/// Policies with an index that is a function of the rows alone.
class EachIndexOfRows : public testing::OfEachPolicy {};

TEST_P(EachIndexOfRows, RemembersNothingOfWhatWasTruncated) {
  scenario_.runtime.budget.value = 200;
  const Traffic traffic(scenario_.runtime.shape, 1);
  const auto runtime = scenario_.open();
  // Lengths in the first segment of wave, in its second, at its end, and one below all clusters.
  for (const std::size_t length : {3'000U, 2'052U, 2'051U, 400U, 12U}) {
    SCOPED_TRACE(length);
    const auto expected = outputs_of(scenario_, length, 40);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(4'500).has_value());
    ASSERT_TRUE(drive.steps(5).has_value());
    ASSERT_TRUE(drive.sequence().truncate(length).has_value());
    ASSERT_TRUE(drive.steps(40).has_value());
    for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(drive.outputs()[5 + i], expected[i]) << i;
    drive.expect_all_rows_right();
  }
}

TEST_P(EachIndexOfRows, IsCutAnywhereAndGoesOn) {
  scenario_.runtime.budget.value = 90;
  const Traffic traffic(scenario_.runtime.shape, 1);
  const auto runtime = scenario_.open();
  Rng rng(testing::seed(), {5});
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(600).has_value());
  for (std::size_t round = 0; round < testing::random_rounds(40); ++round) {
    ASSERT_TRUE(drive.steps(rng.below(120)).has_value());
    const std::size_t length = drive.sequence().length();
    ASSERT_TRUE(drive.sequence().truncate(length - rng.below(length / 4 + 1)).has_value());
    if (rng.below(4) == 0) {
      ASSERT_TRUE(drive.sequence().pause().has_value());
      ASSERT_TRUE(drive.sequence().resume().has_value());
    }
    ASSERT_TRUE(drive.steps(1).has_value());
    drive.expect_all_rows_right();
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EachIndexOfRows,
                         ::testing::Values("oracle", "quest", "clusterkv", "wave"),
                         [](const auto& name) { return name.param; });

/// Policies with extensions that cluster whole batches.
class EachIndexOfClusters : public testing::OfEachPolicy {};

TEST_P(EachIndexOfClusters, RemembersNothingOfTruncatedOutput) {
  // A budget so small that batches are short, and join clusters of earlier batches.
  scenario_.runtime.budget.value = 60;
  const Traffic traffic(scenario_.runtime.shape, 1);
  const auto runtime = scenario_.open();
  const std::size_t last = 460 + 240 / testing::scenario_slowness;
  const auto expected = outputs_of(scenario_, 300, last - 240);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(300).has_value());
  std::size_t variant = 0;
  for (std::size_t length = 460; length <= last; length += 7) {
    if (!testing::takes_variant(variant++)) continue;
    const std::size_t ahead = drive.sequence().length() - 300;
    ASSERT_TRUE(drive.steps(length + 60 - 300 - ahead).has_value());
    ASSERT_TRUE(drive.sequence().truncate(length).has_value());
    const std::size_t known = drive.outputs().size();
    ASSERT_TRUE(drive.steps(50).has_value());
    for (std::size_t i = 0; i < 50; ++i) {
      EXPECT_EQ(drive.outputs()[known + i], expected[length - 300 + i]) << length << " + " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EachIndexOfClusters,
                         ::testing::ValuesIn(testing::clustering_policies()),
                         [](const auto& name) { return name.param; });

TEST(Truncation, LeavesNoTokenBetweenWhatIsIndexedAndTheWindow) {
  // 4 sinks, a window of 116 and 13 to select: what waits beyond both would be out of reach.
  Scenario scenario;
  scenario.runtime.policy = "wave";
  scenario.runtime.budget.value = 133;
  scenario.runtime.window_share = 0.9;
  const Traffic traffic(scenario.runtime.shape, 1);
  const auto runtime = scenario.open();
  std::size_t variant = 0;
  // A cut goes back to the segment's begin, position 2,052: all from there on wait.
  for (std::size_t waiting = 80; waiting < 140; waiting += 5) {
    if (!testing::takes_variant(variant++)) continue;
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(2'500).has_value());
    ASSERT_TRUE(drive.sequence().truncate(2'052 + waiting).has_value());
    for (std::size_t i = 0; i < 70; ++i) {
      ASSERT_TRUE(drive.step().has_value());
      for (const std::size_t layer : {0UL, 1UL}) {
        // The token itself, the window, and half of what is selected.
        EXPECT_LE(drive.sequence().selection(static_cast<LayerId>(layer)).window.size(),
                  1U + 116 + 7)
            << waiting << " + " << i;
      }
    }
  }
}

TEST(ShortPrompts, AreServedWhateverTheirLength) {
  std::size_t variant = 0;
  for (const auto& entry : policies::retrieval_policies()) {
    for (const std::size_t length : {0U, 1U, 2U, 3U, 4U, 5U, 8U, 9U, 20U, 47U, 48U, 49U, 50U}) {
      if (!testing::takes_variant(variant++)) continue;
      SCOPED_TRACE(::testing::Message() << entry.name << " " << length);
      Scenario scenario;
      scenario.runtime.policy = entry.name;
      const auto runtime = scenario.open();
      const Traffic traffic(scenario.runtime.shape, 1);
      Drive drive(*runtime, traffic);
      if (length > 0) {
        ASSERT_TRUE(drive.prefill(length).has_value());
      }
      const Status done = drive.steps(60);
      ASSERT_TRUE(done.has_value()) << done.error().message();
      drive.expect_all_rows_right();
    }
  }
}

TEST(Sequence, RefusesCallsOutOfTurn) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  Sequence& sequence = drive.sequence();
  EXPECT_EQ(sequence.truncate(1).error().code, Errc::invalid_argument);
  EXPECT_EQ(sequence.resume().error().code, Errc::invalid_argument);
  {
    const auto step = drive.begin_step();
    EXPECT_EQ(drive.begin_step()->status(0).error().code, Errc::invalid_argument);
    EXPECT_EQ(sequence.begin_prompt(5).error().code, Errc::invalid_argument);
    EXPECT_EQ(step->attend(LayerId{1}, {}).error().code, Errc::invalid_argument);
    EXPECT_EQ(step->end().error().code, Errc::invalid_argument);
  }
  ASSERT_TRUE(drive.steps(3).has_value());
  EXPECT_EQ(sequence.begin_prompt(std::numeric_limits<std::size_t>::max()).error().code,
            Errc::invalid_argument);
  EXPECT_EQ(sequence.phase(), SequencePhase::idle);
  EXPECT_TRUE(sequence.selection(LayerId{2}).counts.empty());
}

/// A layer of a step at the end of a sequence.
struct LayerStep {
  LayerStep(const Traffic& traffic, std::size_t layer, std::size_t position)
      : row(traffic.rows(layer, {position, position + 1})),
        query(traffic.query(layer, position)),
        output(query.size()),
        tensors{.query = query.data(), .kv = traffic.tensors(row, 1), .output = output.data()} {}
  std::vector<std::byte> row;
  std::vector<float> query;
  std::vector<float> output;
  StepTensors tensors;
};

TEST(Sequence, RefusesALayerBehindTheLast) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  LayerStep first(traffic, 0, 0);
  LayerStep second(traffic, 1, 0);
  const auto step = drive.begin_step();
  ASSERT_TRUE(step->attend(LayerId{0}, first.tensors).has_value());
  ASSERT_TRUE(step->attend(LayerId{1}, second.tensors).has_value());
  EXPECT_EQ(step->attend(LayerId{2}, second.tensors).error().code, Errc::invalid_argument);
  ASSERT_TRUE(testing::end_step(*step).has_value());
}

TEST(Sequence, ForgetsTheQueueOfAStep) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(100).has_value());
  LayerStep first(traffic, 0, 100);
  LayerStep second(traffic, 1, 100);
  auto queue = runtime->backend().make_queue({.name = "another"}).value();
  {
    const auto step = testing::begin_step(*runtime, drive.sequence(), *queue);
    ASSERT_TRUE(step->attend(LayerId{0}, first.tensors).has_value());
    ASSERT_TRUE(step->attend(LayerId{1}, second.tensors).has_value());
    ASSERT_TRUE(testing::end_step(*step).has_value());
  }
  queue.reset();
  drive.begin_step().reset();
  EXPECT_TRUE(drive.sequence().begin_prompt(5).has_value());
}

TEST(Runtime, NeedsNoMoreThreadsForMoreSequences) {
  const Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive first(*runtime, traffic);
  ASSERT_TRUE(first.prefill(100).has_value());
  ASSERT_TRUE(first.steps(2).has_value());
  const std::size_t with_one = testing::product_threads();
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (int i = 0; i < 255; ++i) sequences.push_back(runtime->open_sequence().value());
  EXPECT_EQ(testing::product_threads(), with_one);
  for (int i = 0; i < 3; ++i) {
    auto own = testing::make_own_queue(runtime->backend());
    Drive drive(std::move(sequences.back()), *runtime, std::move(own.queue), traffic);
    sequences.pop_back();
    ASSERT_TRUE(drive.prefill(100).has_value());
    ASSERT_TRUE(drive.steps(2).has_value());
    EXPECT_EQ(testing::product_threads(), with_one) << "with work on the queues of more";
  }
}

}  // namespace
}  // namespace terrace
