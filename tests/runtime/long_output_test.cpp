// Outputs much longer than the window: indexes grow batch by batch and are built anew beside the
// steps, and no row is lost, attended twice or beyond the budget.
#include <gtest/gtest.h>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"
#include "terrace/runtime/selection_observer.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t prompt = 120;
constexpr std::size_t step_count = 400;

class EachGrowingPolicy : public testing::OfEachPolicy {
 protected:
  EachGrowingPolicy() { scenario_.runtime.budget.value = 90; }
};

TEST_P(EachGrowingPolicy, NeverAttendsBeyondTheBudgetNorToARowTwice) {
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  for (std::size_t i = 0; i < step_count; ++i) {
    ASSERT_TRUE(drive.step().has_value());
    for (const std::size_t layer : {0UL, 1UL}) {
      const StepSelection chosen = drive.sequence().selection(static_cast<LayerId>(layer));
      for (std::size_t list = 0; list < chosen.counts.size(); ++list) {
        EXPECT_LE(chosen.sinks.size() + chosen.window.size() + chosen.counts[list], 90U);
        for (std::size_t k = 0; k < chosen.counts[list]; ++k) {
          const std::uint32_t id = chosen.ids[list * chosen.stride + k];
          EXPECT_TRUE(id >= chosen.sinks.end && id < chosen.window.begin);
        }
      }
    }
  }
  drive.expect_all_rows_right();
}

TEST_P(EachGrowingPolicy, CanReachEveryTokenBeforeTheWindow) {
  // If there is room for everything but one row, at most that row is missed.
  Scenario full;
  full.runtime.policy = "full";
  scenario_.runtime.budget.value = 1000;
  scenario_.runtime.window_share = 0.1;
  const auto expected = outputs_of(full, prompt, step_count);
  const auto outputs = outputs_of(scenario_, prompt, step_count);
  for (std::size_t i = 0; i < expected.back().size(); ++i) {
    EXPECT_NEAR(outputs.back()[i], expected.back()[i], 1e-4F);  // the order of summing differs
  }
}

TEST_P(EachGrowingPolicy, SelectsInEveryStepHoweverSmallTheBudget) {
  // Less than the shortest batch: tokens that wait for each other must not use up the budget.
  scenario_.runtime.budget.value = 40;
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  for (std::size_t i = 0; i < step_count; ++i) {
    ASSERT_TRUE(drive.step().has_value());
    for (const std::size_t layer : {0UL, 1UL}) {
      const StepSelection chosen = drive.sequence().selection(static_cast<LayerId>(layer));
      ASSERT_FALSE(chosen.counts.empty()) << "step " << i;
      EXPECT_LE(chosen.sinks.size() + chosen.window.size(), 40U - 8U) << "step " << i;
    }
  }
}

TEST_P(EachGrowingPolicy, DecodesTheSameAgainAfterBeingTruncated) {
  // So few centroids that the prompt trains them fully: a codebook that is built again is equal.
  scenario_.runtime.retrieval.pq.bits = 2;
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(200).has_value());
  ASSERT_TRUE(drive.sequence().truncate(prompt).has_value());
  ASSERT_TRUE(drive.steps(200).has_value());
  for (std::size_t i = 0; i < 200; ++i)
    EXPECT_EQ(drive.outputs()[200 + i], drive.outputs()[i]) << i;
}

TEST_P(EachGrowingPolicy, GoesOnFromAForkAndAfterAPause) {
  const auto expected = outputs_of(scenario_, prompt, 300);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(150).has_value());
  Drive twin(drive.sequence().fork().value(), *runtime, traffic);
  ASSERT_TRUE(twin.sequence().pause().has_value());
  ASSERT_TRUE(twin.sequence().resume().has_value());
  ASSERT_TRUE(twin.steps(150).has_value());
  for (std::size_t i = 0; i < 150; ++i) EXPECT_EQ(twin.outputs()[i], expected[150 + i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Table, EachGrowingPolicy,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

TEST(DenseLayers, AttendToEverythingAndStayOnTheDevice) {
  Scenario scenario;
  scenario.runtime.policy = "clusterkv";
  scenario.runtime.dense_layers = 1;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(50).has_value());
  EXPECT_EQ(drive.sequence().selection(LayerId{0}).window.size(), 250 - 4);
  EXPECT_TRUE(drive.sequence().selection(LayerId{0}).counts.empty());
  EXPECT_FALSE(drive.sequence().selection(LayerId{1}).counts.empty());
  drive.expect_all_rows_right();
  // The first layer's output is full attention's.
  Scenario full;
  full.runtime.policy = "full";
  const auto expected = outputs_of(full, 200, 50);
  for (std::size_t i = 0; i < expected.back().size() / 2; ++i) {
    EXPECT_NEAR(drive.outputs().back()[i], expected.back()[i], 1e-4F);
  }
}

TEST(DenseLayers, CannotBeMoreThanTheModelHas) {
  Scenario scenario;
  scenario.runtime.dense_layers = 3;
  EXPECT_FALSE(scenario.runtime.validate().has_value());
}

Scenario refreshed(const std::string& policy) {
  Scenario scenario;
  scenario.runtime.policy = policy;
  scenario.runtime.refresh = {.tokens = 40};
  return scenario;
}

void expect_refreshes_change_nothing(const std::string& policy) {
  Scenario plain;
  plain.runtime.policy = policy;
  const auto expected = outputs_of(plain, prompt, step_count);
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    doubles::SeededScheduler scheduler(seed);
    Scenario scenario = refreshed(policy);
    scenario.scheduler = &scheduler;
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(step_count).has_value());
    EXPECT_EQ(drive.outputs(), expected) << "seed " << seed;
    EXPECT_GT(drive.sequence().counters().refreshes, 0U) << "seed " << seed;
  }
}

TEST(Refresh, ChangesNoBitOfAnIndexThatForgetsNothing) {
  expect_refreshes_change_nothing("oracle");
}

TEST(Refresh, ChangesNoBitOfPages) { expect_refreshes_change_nothing("quest"); }

TEST(Refresh, KeepsEveryRowAndBudgetOfEveryPolicy) {
  for (const std::string& policy : testing::selecting_policies()) {
    SCOPED_TRACE(policy);
    const Scenario scenario = refreshed(policy);
    const auto runtime = scenario.open();
    const Traffic traffic(scenario.runtime.shape, 1);
    Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(prompt).has_value());
    ASSERT_TRUE(drive.steps(150).has_value());
    ASSERT_TRUE(drive.sequence().truncate(200).has_value());
    ASSERT_TRUE(drive.steps(100).has_value());
    ASSERT_TRUE(drive.sequence().pause().has_value());
    const Status resumed = drive.sequence().resume();
    ASSERT_TRUE(resumed.has_value()) << resumed.error().message();
    ASSERT_TRUE(drive.steps(50).has_value());
    drive.expect_all_rows_right();
    EXPECT_LE(drive.sequence().counters().attended, drive.sequence().counters().lists * 48);
  }
}

/// Counts how often the clusters of each layer became others.
class RenamedClusters final : public SelectionObserver {
 public:
  explicit RenamedClusters(std::size_t layers) : of_layer(layers) {}

  void on_share(SequenceId, std::size_t) override {}
  void on_prompt(const LayerPrompt&) override {}
  void on_selection(const LayerSelection& selection) override {
    if (selection.clusters_renamed) ++of_layer[index(selection.layer)];
  }
  void on_step_end(const StepTraffic&) override {}
  void on_loss(SequenceId) override {}
  void on_pause(SequenceId) override {}
  void on_load(const LayerLoad&) override {}
  void on_close(SequenceId) override {}

  std::vector<std::size_t> of_layer;
};

TEST(Refresh, HasItsTurnInEveryLayer) {
  Scenario scenario = refreshed("clusterkv");
  scenario.runtime.shape.layers = 6;
  scenario.runtime.cache.granularity = CacheGranularity::cluster;
  RenamedClusters renamed(6);
  scenario.runtime.observer = &renamed;
  doubles::SeededScheduler scheduler(3);
  scenario.scheduler = &scheduler;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(4 * step_count).has_value());
  // The prompt's index is one.
  for (const std::size_t count : renamed.of_layer) EXPECT_GE(count, 1U + 2U);
}

}  // namespace
}  // namespace terrace
