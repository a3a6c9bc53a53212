// Retention beside retrieval: entries are held on the device, and what they leave of the budget is
// selected of all other tokens. Nothing is dropped, and nothing is attended to twice.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/batch.hpp"
#include "runtime/faulty_runtime.hpp"
#include "runtime/naive_attention.hpp"
#include "runtime/retained.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Drive;
using testing::FaultyRuntime;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;

using testing::retained::sinks;
using testing::retained::window;

// A third of the middle is held.
constexpr std::size_t held = testing::retained::middle / 3;
constexpr std::size_t selected = testing::retained::middle - held;

Scenario scenario_with(const std::string& retrieval, const std::string& retention) {
  Scenario scenario = testing::retained::scenario_with(retention);
  scenario.runtime.policy = retrieval;
  scenario.runtime.dropped = DroppedTokens::keep;
  scenario.runtime.held_share = 1.0 / 3;
  return scenario;
}

/// The positions that a KV head attended to in the last step, sorted.
std::vector<std::uint32_t> attended(Sequence& sequence, LayerId layer, std::size_t head) {
  const StepSelection chosen = sequence.selection(layer);
  const auto ids = chosen.ids.subspan(head * chosen.stride, chosen.counts[head]);
  const auto entries = sequence.entries(layer, static_cast<HeadId>(head)).positions;
  std::vector<std::uint32_t> all(ids.begin(), ids.end());
  all.insert(all.end(), entries.begin(), entries.end());
  for (const TokenRange& range : {chosen.sinks, chosen.window}) {
    for (std::size_t p = range.begin; p < range.end; ++p) {
      all.push_back(static_cast<std::uint32_t>(p));
    }
  }
  std::ranges::sort(all);
  return all;
}

/// Checks an output against naive attention over the rows of `positions`.
void expect_attention_over(std::span<const std::uint32_t> positions, const Traffic& traffic,
                           std::size_t layer, std::size_t query, std::span<const float> output) {
  const KvShape& shape = traffic.shape();
  const std::vector<float> queries = traffic.query(layer, positions.back());
  testing::NaiveAttention naive(shape, std::span(queries).subspan(query * shape.head_dim));
  for (const std::uint32_t position : positions) {
    naive.add(traffic.row(layer, query / shape.group(), position).data(), 0);
  }
  for (std::size_t i = 0; i < shape.head_dim; ++i) {
    ASSERT_NEAR(output[i], naive.output(i), 2e-3) << "layer " << layer << " head " << query;
  }
}

/// Checks what the last step attended to: each token once, as many as the budget has (entries of
/// pyramidkv differ from layer to layer), and the output that these give.
void expect_each_token_once(Drive& drive, const Traffic& traffic) {
  const KvShape& shape = traffic.shape();
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    for (std::size_t query = 0; query < shape.query_heads; ++query) {
      const std::vector<std::uint32_t> all =
          attended(drive.sequence(), static_cast<LayerId>(layer), query / shape.group());
      ASSERT_EQ(std::ranges::adjacent_find(all), all.end()) << "layer " << layer;
      const std::size_t entries =
          drive.sequence().entries(static_cast<LayerId>(layer), HeadId{0}).positions.size();
      ASSERT_EQ(all.size(), sinks + entries + selected + window + 1);
      const std::size_t at = (layer * shape.query_heads + query) * shape.head_dim;
      expect_attention_over(all, traffic, layer, query,
                            std::span(drive.outputs().back()).subspan(at, shape.head_dim));
    }
  }
}

class HeldEntries : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  Scenario scenario_ = scenario_with(std::get<0>(GetParam()), std::get<1>(GetParam()));
  Traffic traffic_{scenario_.runtime.shape, 1};
};

TEST_P(HeldEntries, AreAttendedToBesideASelectionOfAllOtherTokens) {
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  for (std::size_t step = 0; step < 40; ++step) {
    drive.sequence().reset_counters();
    ASSERT_TRUE(drive.step().has_value());
    expect_each_token_once(drive, traffic_);
    const SequenceCounters counters = drive.sequence().counters();
    EXPECT_EQ(counters.attended, counters.lists * (sinks + held + selected + window + 1));
  }
  const RetentionReport report = drive.sequence().retention();
  EXPECT_EQ(report.flushes, 3U);  // after the prompt, and two
  EXPECT_EQ(report.kept, report.lists * held);
  EXPECT_EQ(report.dropped, 0U);
  drive.expect_all_rows_right();
}

TEST_P(HeldEntries, MoveFewerRowsThanASelectionOfTheWholeBudget) {
  const auto demand = [&](const Scenario& scenario) {
    const auto runtime = scenario.open();
    Drive drive(*runtime, traffic_);
    EXPECT_TRUE(drive.prefill(400).has_value());
    EXPECT_TRUE(drive.steps(10).has_value());
    return static_cast<double>(drive.sequence().counters().bytes.demand);
  };
  scenario_.runtime.cache.policy = "none";
  Scenario without = scenario_;
  without.runtime.retention_policy = "none";
  // Now and then a selected row lies in a block that the window begins in.
  EXPECT_NEAR(demand(scenario_) / demand(without), 2.0 / 3, 0.01);
}

TEST_P(HeldEntries, GiveTheSameBitsInABatchWithACacheAndAloneHoweverAPromptIsCut) {
  const std::vector<StepOutput> alone = testing::outputs_of(scenario_, 200, 40);
  Scenario cached = scenario_;
  cached.runtime.cache = {.policy = "lru", .tokens = 64};
  const auto runtime = cached.open();
  Batch batch(*runtime, 2);
  ASSERT_TRUE(batch.sequence(0).begin_prompt(200).has_value());
  ASSERT_TRUE(batch.drive(1).prefill(90).has_value());
  batch.expect_step(std::array{BatchMember{0, 70}, BatchMember{1, 1}});
  batch.expect_step(std::array{BatchMember{1, 1}, BatchMember{0, 130}});
  for (std::size_t i = 0; i < 40; ++i) batch.expect_step(std::array<std::size_t, 2>{1, 0});
  const std::vector<StepOutput>& all = batch.outputs(0);
  EXPECT_EQ(std::vector<StepOutput>(all.end() - 40, all.end()), alone);
}

TEST_P(HeldEntries, ComeBackBehindAPauseAForkAndACut) {
  const std::vector<StepOutput> expected = testing::outputs_of(scenario_, 200, 40);
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(20).has_value());
  ASSERT_TRUE(drive.sequence().pause().has_value());
  ASSERT_TRUE(drive.sequence().resume().has_value());
  auto forked = drive.sequence().fork();
  ASSERT_TRUE(forked.has_value()) << forked.error().message();
  Drive twin(std::move(*forked), *runtime, traffic_);
  ASSERT_TRUE(drive.steps(20).has_value());
  ASSERT_TRUE(twin.steps(20).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_TRUE(std::equal(twin.outputs().begin(), twin.outputs().end(), expected.begin() + 20));

  // A cut after the decision keeps entries; a cut before it makes the policy choose new ones.
  for (const std::size_t length : {235U, 150U, 100U}) {
    ASSERT_TRUE(twin.sequence().truncate(length).has_value()) << length;
    twin.expect_all_rows_right();
    while (twin.sequence().length() < 240) ASSERT_TRUE(twin.step().has_value());
    expect_each_token_once(twin, traffic_);
    twin.expect_all_rows_right();
  }
  ASSERT_TRUE(twin.sequence().truncate(0).has_value());
  ASSERT_TRUE(twin.prefill(200).has_value());
  ASSERT_TRUE(twin.step().has_value());
  expect_each_token_once(twin, traffic_);
}

TEST_P(HeldEntries, BehindACutAreTheSameWhereMemoryForTheDecisionWasRefused) {
  std::vector<StepOutput> expected;
  for (std::uint64_t nth = 0;; ++nth) {
    FaultyRuntime faulty(scenario_);
    Drive drive(*faulty.runtime, traffic_);
    ASSERT_TRUE(drive.prefill(150).has_value());
    faulty.faults->arm({.allocation_nth = nth});
    const Status refused = drive.prefill(200);
    const bool failed = faulty.faults->counters().allocations_failed > 0;
    faulty.faults->arm({});
    if (!refused) {
      ASSERT_TRUE(drive.prefill(200).has_value());
    }
    ASSERT_TRUE(drive.sequence().truncate(170).has_value());
    ASSERT_TRUE(drive.steps(20).has_value());
    if (nth == 0) expected = drive.outputs();
    ASSERT_EQ(drive.outputs(), expected) << "allocation " << nth;
    if (nth > 0 && !failed) break;
  }
}

TEST_P(HeldEntries, TakeAPartOfDraftsAndOfLaterPrompts) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  ASSERT_TRUE(batch.drive(0).prefill(200).has_value());
  for (std::size_t i = 0; i < 12; ++i) {
    batch.expect_step(std::array{BatchMember{0, 4}}, std::array<std::size_t, 1>{i % 5});
  }
  batch.expect_prompt(0, 60, 60);
  batch.expect_step(std::array<std::size_t, 1>{0});
  const auto all = attended(batch.sequence(0), LayerId{1}, 1);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
  const std::size_t entries = batch.sequence(0).entries(LayerId{1}, HeadId{1}).positions.size();
  EXPECT_EQ(all.size(), sinks + entries + selected + window + 1);
  batch.drive(0).expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Policies, HeldEntries,
                         ::testing::Combine(::testing::Values("pqcache", "qpq", "oracle"),
                                            ::testing::Values("recent", "snapkv", "pyramidkv")),
                         [](const auto& one) {
                           return std::get<0>(one.param) + "_" + std::get<1>(one.param);
                         });

std::string refusal_of(const std::string& retrieval, const std::string& retention) {
  const Scenario scenario = scenario_with(retrieval, retention);
  const auto opened =
      Runtime::open(scenario.runtime, testing::make_scenario_backend(scenario.backend));
  return std::string(opened ? "none" : opened.error().message());
}

TEST(HeldEntriesOptions, RefusePoliciesThatCannotShareABudget) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal_of("wave", "snapkv"), HasSubstr("use pqcache, qpq, oracle"));
  EXPECT_THAT(refusal_of("streaming", "snapkv"), HasSubstr("use pqcache, qpq, oracle"));
  EXPECT_THAT(refusal_of("pqcache", "h2o"), HasSubstr("needs the weights"));
  EXPECT_THAT(refusal_of("pqcache", "chelsea"), HasSubstr("entries of several tokens"));
  EXPECT_EQ(refusal_of("pqcache", "recent"), "none");
}

TEST(HeldEntriesOptions, RefuseAShareThatLeavesNothingToOneOfThem) {
  for (const double share : {0.0, 1.0, -0.5, std::nan("")}) {
    Scenario scenario = scenario_with("pqcache", "recent");
    scenario.runtime.held_share = share;
    const Status valid = scenario.runtime.validate();
    ASSERT_FALSE(valid.has_value()) << share;
    EXPECT_THAT(valid.error().message(), ::testing::HasSubstr("retention.hold"));
  }
}

}  // namespace
}  // namespace terrace
