// Rows dealt out over KV heads (retrieval.head_budget): as many in all, and nothing else changes.
#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t prompt = 200;
constexpr std::size_t step_count = 12;

class DealtHeads : public testing::OfEachPolicy {
 protected:
  DealtHeads() {
    scenario_.runtime.head_budget = HeadBudget::by_weight;
    scenario_.runtime.budget.value = 60;
  }
};

TEST_P(DealtHeads, SelectAsManyRowsInAll) {
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  std::set<std::uint32_t> sizes;
  for (std::size_t layer = 0; layer < scenario_.runtime.shape.layers; ++layer) {
    const StepSelection selection = drive.sequence().selection(static_cast<LayerId>(layer));
    ASSERT_FALSE(selection.counts.empty());
    std::size_t attended = 0;
    for (const std::uint32_t count : selection.counts) {
      attended += selection.sinks.size() + selection.window.size() + count;
      sizes.insert(count);
    }
    EXPECT_LE(attended, 60 * selection.counts.size());
  }
  EXPECT_GT(sizes.size(), 1U) << "no head was dealt more than another";
  drive.expect_all_rows_right();
}

TEST_P(DealtHeads, GiveTheSameBitsWhereverRowsAndIndexLie) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  Scenario streamed = scenario_;
  streamed.runtime.index_residency = IndexResidency::host;
  EXPECT_EQ(outputs_of(streamed, prompt, step_count), expected);
  Scenario cached = scenario_;
  cached.runtime.cache.tokens = 64;
  cached.runtime.cache.admission = "always";
  EXPECT_EQ(outputs_of(cached, prompt, step_count), expected);
  Scenario threaded = scenario_;
  threaded.runtime.host_threads = 3;
  EXPECT_EQ(outputs_of(threaded, prompt, step_count), expected);
}

TEST_P(DealtHeads, GoOnInAForkAndAfterAPause) {
  const auto expected = outputs_of(scenario_, prompt, step_count);
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  Drive twin(drive.sequence().fork().value(), *runtime, traffic);
  ASSERT_TRUE(drive.sequence().pause().has_value());
  ASSERT_TRUE(drive.sequence().resume().has_value());
  ASSERT_TRUE(drive.steps(step_count).has_value());
  ASSERT_TRUE(twin.steps(step_count).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_EQ(twin.outputs(), expected);
}

INSTANTIATE_TEST_SUITE_P(Table, DealtHeads, ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

TEST(HeadBudget, GivesABudgetThatCoversTheContextToEveryHead) {
  Scenario even;
  even.runtime.budget.value = 400;
  even.runtime.window_share = 0.1;
  Scenario dealt = even;
  dealt.runtime.head_budget = HeadBudget::by_weight;
  EXPECT_EQ(outputs_of(dealt, 150, 20), outputs_of(even, 150, 20));
}

TEST(HeadBudget, LeavesABudgetOfMassAlone) {
  Scenario even;
  even.runtime.policy = "wave";
  even.runtime.budget = {.kind = TokenBudget::Kind::mass, .value = 0.9};
  Scenario dealt = even;
  dealt.runtime.head_budget = HeadBudget::by_weight;
  EXPECT_EQ(outputs_of(dealt, 150, 20), outputs_of(even, 150, 20));
}

}  // namespace
}  // namespace terrace
