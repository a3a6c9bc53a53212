// Retention: tokens that leave the window stay as entries, become one with others, or are dropped.
// Each is in exactly one of these, and attention sees the entries that there are.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numeric>
#include <thread>

#include "runtime/batch.hpp"
#include "runtime/naive_attention.hpp"
#include "runtime/retained.hpp"
#include "terrace/core/dtype.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Drive;
using testing::NaiveAttention;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;
using namespace testing::retained;

/// Checks the output of the last step against attention over the entries that there are.
void expect_attention_over_entries(Drive& drive, const Traffic& traffic) {
  const KvShape& shape = traffic.shape();
  const std::size_t position = drive.sequence().length() - 1;
  const std::size_t undecided = std::min(drive.sequence().window().begin, position);
  const StepOutput& output = drive.outputs().back();
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const std::vector<float> queries = traffic.query(layer, position);
    for (std::size_t query = 0; query < shape.query_heads; ++query) {
      const std::size_t head = query / shape.group();
      NaiveAttention naive(shape, std::span(queries).subspan(query * shape.head_dim));
      const auto add = [&](std::size_t p) { naive.add(traffic.row(layer, head, p).data(), 0); };
      for (std::size_t p = 0; p < sinks; ++p) add(p);
      const EntryList& list = entries_of(drive.sequence(), layer, head);
      for (std::size_t i = 0; i < list.size(); ++i) {
        naive.add(entry_row(drive.sequence(), layer, head, i), std::log(list.degrees[i]));
      }
      for (std::size_t p = undecided; p <= position; ++p) add(p);
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        const std::size_t at = (layer * shape.query_heads + query) * shape.head_dim + i;
        ASSERT_NEAR(output[at], naive.output(i), 2e-3) << "layer " << layer << " head " << query;
      }
    }
  }
}

/// No decision is made until `released`.
void hold_cluster_queue(Drive& drive, const std::atomic<bool>& released) {
  const auto hold = [&released]() -> Result<std::size_t> {
    // Bounded: a test that never releases it has failed, and must not hang.
    for (int i = 0; i < 100'000'000 && !released.load(); ++i) std::this_thread::yield();
    return 0;
  };
  EXPECT_TRUE(
      state_of(drive.sequence()).parts.work.lanes.cluster().call(Phase::cluster, hold).has_value());
}

class EachRetention : public ::testing::TestWithParam<std::string> {
 protected:
  Scenario scenario_ = scenario_with(GetParam());
  Traffic traffic_{scenario_.runtime.shape, 1};
};

TEST_P(EachRetention, AttendsToItsEntriesAndConservesTokens) {
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  for (std::size_t step = 0; step < 40; ++step) {
    ASSERT_TRUE(drive.step().has_value());
    expect_attention_over_entries(drive, traffic_);
    expect_conservation(drive.sequence(), traffic_);
  }
  EXPECT_EQ(drive.sequence().retention().flushes, 3U);  // after the prompt, and two
}

TEST_P(EachRetention, FillsItsBudgetAndNoMoreThanTheGrowingWindow) {
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  for (std::size_t step = 1; step <= 40; ++step) {
    drive.sequence().reset_counters();
    ASSERT_TRUE(drive.step().has_value());
    const SequenceCounters counters = drive.sequence().counters();
    const std::size_t since_flush = (step - 1) % window + 1;
    EXPECT_EQ(counters.attended, counters.lists * (sinks + middle + window + since_flush))
        << "step " << step;
  }
}

TEST_P(EachRetention, IsFullAttentionBitForBitWhileNothingLeaves) {
  Scenario full = scenario_;
  full.runtime.policy = "full";
  full.runtime.retention_policy = "none";
  // The last step before the first flush.
  constexpr std::size_t prompt = sinks + middle + window;
  EXPECT_EQ(testing::outputs_of(scenario_, prompt, window),
            testing::outputs_of(full, prompt, window));
  EXPECT_NE(testing::outputs_of(scenario_, prompt + 1, 1),
            testing::outputs_of(full, prompt + 1, 1));
}

TEST_P(EachRetention, GivesRowsUpOnTheHostToo) {
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  const std::size_t prompt = testing::scenario_slowness == 1 ? 400 : 160;
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  const auto pages = [&] {
    return state_of(drive.sequence()).runtime().host->pages().pages_in_use();
  };
  const std::size_t before = pages();
  ASSERT_TRUE(drive.steps(2).has_value());
  const std::size_t left = 1 + (window + 2) / 8 + 2;  // blocks of sinks and window, of 8 tokens
  EXPECT_LE(pages(), 2 * left);
  EXPECT_GE(before, 2 * (prompt / 8));
  const std::size_t after_flush = pages();
  ASSERT_TRUE(drive.steps(6 * window).has_value());
  EXPECT_LE(pages(), after_flush + 2 * 2 * (window / 8 + 1));
}

TEST_P(EachRetention, GivesTheSameBitsHoweverAPromptIsCut) {
  const auto life = [&](std::size_t piece) {
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    batch.expect_prompt(0, 300, piece);
    for (std::size_t i = 0; i < 20; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
    batch.expect_prompt(0, 70, piece);  // a second turn
    for (std::size_t i = 0; i < 20; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
    expect_conservation(batch.sequence(0), batch.traffic(0));
    return batch.outputs(0);
  };
  const std::vector<StepOutput> whole = life(1000);
  EXPECT_EQ(life(64), whole);
  if (testing::scenario_slowness == 1) {
    EXPECT_EQ(life(7), whole);
  }
}

TEST_P(EachRetention, DecodesAsBehindAPromptThatItsEngineAttendedTo) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  batch.expect_step(std::array{BatchMember{0, 300}});
  for (std::size_t i = 0; i < 40; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
  const std::vector<StepOutput>& all = batch.outputs(0);
  EXPECT_EQ(std::vector<StepOutput>(all.end() - 40, all.end()),
            testing::outputs_of(scenario_, 300, 40));
}

TEST_P(EachRetention, GivesEachOfABatchWhatItGivesAlone) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 3);
  const std::array prompts{std::size_t{90}, std::size_t{200}, std::size_t{61}};
  for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(batch.drive(i).prefill(prompts[i]).has_value());
  for (std::size_t i = 0; i < 40; ++i) batch.expect_step(std::array<std::size_t, 3>{2, 0, 1});
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(batch.outputs(i), testing::outputs_of(scenario_, prompts[i], 40, i + 1)) << i;
  }
}

TEST_P(EachRetention, GoesOnAsIfNothingWereBehindAPauseAForkAndACut) {
  const auto expected = testing::outputs_of(scenario_, 200, 40);
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
  ASSERT_TRUE(twin.steps(6).has_value());
  ASSERT_TRUE(twin.sequence().truncate(223).has_value());
  ASSERT_TRUE(twin.steps(17).has_value());
  EXPECT_EQ(drive.outputs(), expected);
  EXPECT_TRUE(
      std::equal(twin.outputs().begin(), twin.outputs().begin() + 6, expected.begin() + 20));
  EXPECT_TRUE(std::equal(twin.outputs().begin() + 6, twin.outputs().end(), expected.begin() + 23));
}

TEST_P(EachRetention, SaysWhatItHasDroppedAndCutsToNothing) {
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.step().has_value());
  const auto cut = drive.sequence().truncate(150);
  ASSERT_FALSE(cut.has_value());
  EXPECT_THAT(std::string(cut.error().message()),
              ::testing::HasSubstr("of 201 tokens keep at least 185, or none"));
  std::size_t gone = 0;
  for (std::uint32_t p = 0; p < 201; ++p) {
    std::vector<std::byte> row(traffic_.shape().row_bytes());
    const auto read = drive.sequence().read_rows(LayerId{1}, HeadId{0}, {&p, 1}, row);
    if (read) continue;
    ++gone;
    EXPECT_THAT(std::string(read.error().message()),
                ::testing::HasSubstr("retention has dropped or merged the token"));
  }
  EXPECT_GE(gone, 200 - sinks - middle - window);
  ASSERT_TRUE(drive.sequence().truncate(0).has_value());
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(40).has_value());
  const std::vector<StepOutput> again(drive.outputs().end() - 40, drive.outputs().end());
  EXPECT_EQ(again, testing::outputs_of(scenario_, 200, 40));
}

TEST_P(EachRetention, AttendsToEverythingUntilItHasDecided) {
  scenario_.runtime.until_ready = UntilReady::exact;
  Scenario full = scenario_;
  full.runtime.policy = "full";
  full.runtime.retention_policy = "none";
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.sequence().await_indexes().has_value());
  EXPECT_TRUE(drive.sequence().index_ready());
  EXPECT_EQ(drive.sequence().retention().flushes, 1U);
  ASSERT_TRUE(drive.steps(100).has_value());  // no step waits, whenever decisions come
  ASSERT_TRUE(drive.sequence().await_indexes().has_value());
  expect_conservation(drive.sequence(), traffic_);
}

TEST_P(EachRetention, DecidesTheSameHoweverLate) {
  scenario_.runtime.until_ready = UntilReady::exact;
  const auto entries_behind = [this](std::size_t steps_before_it_decides) {
    std::atomic<bool> released = steps_before_it_decides == 0;
    const auto runtime = scenario_.open();
    Drive drive(*runtime, traffic_);
    EXPECT_TRUE(drive.prefill(200).has_value());
    EXPECT_TRUE(drive.sequence().await_indexes().has_value());
    EXPECT_TRUE(drive.steps(window - 1).has_value());
    EXPECT_TRUE(drive.sequence().await_indexes().has_value());
    hold_cluster_queue(drive, released);
    EXPECT_TRUE(drive.step().has_value());  // starts a flush
    EXPECT_TRUE(drive.steps(steps_before_it_decides).has_value());
    EXPECT_EQ(drive.sequence().retention().flushes, 1U);
    released.store(true);
    EXPECT_TRUE(drive.sequence().await_indexes().has_value());
    EXPECT_EQ(drive.sequence().retention().flushes, 2U);
    return entries_of(drive.sequence(), 1, 0).positions;
  };
  // So many steps that their queries replace all kept ones.
  EXPECT_EQ(entries_behind(3 * scenario_.runtime.retention.score_window), entries_behind(0));
}

TEST_P(EachRetention, LosesNoTokenWhileItsFirstDecisionIsLate) {
  scenario_.runtime.until_ready = UntilReady::exact;
  std::atomic<bool> released = false;
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  hold_cluster_queue(drive, released);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(2 * window).has_value());
  EXPECT_EQ(drive.sequence().retention().flushes, 0U);
  released.store(true);
  ASSERT_TRUE(drive.sequence().await_indexes().has_value());
  for (std::size_t step = 0; step < window; ++step) {
    ASSERT_TRUE(drive.step().has_value());
    expect_attention_over_entries(drive, traffic_);
    expect_conservation(drive.sequence(), traffic_);
  }
}

TEST_P(EachRetention, LeavesDenseLayersAlone) {
  scenario_.runtime.dense_layers = 1;
  const auto runtime = scenario_.open();
  Drive drive(*runtime, traffic_);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(40).has_value());
  Scenario full = scenario_;
  full.runtime.policy = "full";
  full.runtime.retention_policy = "none";
  const auto expected = testing::outputs_of(full, 200, 40);
  const auto dense = static_cast<std::ptrdiff_t>(expected[0].size() / 2);
  for (std::size_t step = 0; step < 40; ++step) {
    EXPECT_TRUE(std::equal(expected[step].begin(), expected[step].begin() + dense,
                           drive.outputs()[step].begin()));
    EXPECT_FALSE(std::equal(expected[step].begin() + dense, expected[step].end(),
                            drive.outputs()[step].begin() + dense));
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EachRetention,
                         ::testing::Values("recent", "snapkv", "pyramidkv", "chelsea",
                                           with_outliers),
                         [](const auto& one) { return one.param; });

TEST(Retention, RefusesARetrievalPolicyThatWouldWantTheTokens) {
  Scenario scenario = scenario_with("snapkv");
  scenario.runtime.policy = "pqcache";
  const auto runtime = Runtime::open(scenario.runtime, testing::make_scenario_backend({}));
  ASSERT_FALSE(runtime.has_value());
  EXPECT_THAT(std::string(runtime.error().message()),
              ::testing::HasSubstr("set retrieval.policy to streaming"));
}

TEST(Retention, LeavesAttentionToNoEngineThatKnowsNoEntries) {
  const Scenario scenario = scenario_with("recent");
  const auto runtime = scenario.open();
  const auto sequence = runtime->open_sequence().value();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(20).has_value());
  const auto step = drive.begin_step();
  KvView view;
  const Status gathered = step->gather(LayerId{0}, {}, {&view, 1});
  ASSERT_FALSE(gathered.has_value());
  EXPECT_EQ(gathered.error().code, Errc::unsupported);
}

/// Sizes of the entry lists after a prompt, [layers * kv_heads].
std::vector<std::size_t> list_sizes(const Scenario& scenario, std::size_t prompt,
                                    std::size_t decoded) {
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  const std::size_t before = runtime->backend().memory(Tier::device).in_use;
  Drive drive(*runtime, traffic);
  EXPECT_TRUE(drive.prefill(prompt).has_value());
  testing::forget_prompt(*runtime);
  EXPECT_TRUE(drive.steps(decoded).has_value());
  EXPECT_LE(runtime->backend().memory(Tier::device).peak - before,
            runtime->memory_need({.tokens = prompt + decoded})->device_held);
  expect_conservation(drive.sequence(), traffic);
  std::vector<std::size_t> sizes;
  for (std::size_t layer = 0; layer < traffic.shape().layers; ++layer) {
    for (std::size_t head = 0; head < traffic.shape().kv_heads; ++head) {
      sizes.push_back(entries_of(drive.sequence(), layer, head).size());
    }
  }
  return sizes;
}

TEST(Retention, KeepsAllTokensOfOutlierHeadsAndFewerOfTheOthers) {
  const Scenario scenario = scenario_with(with_outliers);
  // The middle has 81 of the 100 tokens. 4 * 45 entries are divided among heads.
  EXPECT_THAT(list_sizes(scenario, 100, 1), ::testing::ElementsAre(33, 81, 33, 33));
  // Later tokens find no more room.
  EXPECT_THAT(list_sizes(scenario, 100, 60), ::testing::ElementsAre(33, 81, 33, 33));
  // The others keep half of the mean, or more.
  EXPECT_THAT(list_sizes(scenario, 300, 1), ::testing::ElementsAre(23, 111, 23, 23));
}

TEST(Retention, LeavesTokensOfOutlierHeadsAsTheyAre) {
  const Scenario scenario = scenario_with(with_outliers);
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(100).has_value());
  ASSERT_TRUE(drive.step().has_value());
  for (std::uint32_t p = 0; p < 100; ++p) {
    std::vector<std::byte> row(traffic.shape().row_bytes());
    ASSERT_TRUE(drive.sequence().read_rows(LayerId{0}, HeadId{1}, {&p, 1}, row).has_value()) << p;
    EXPECT_EQ(row, traffic.row(0, 1, p));
  }
}

/// Rows of prompts whose keys were all alike would be one entry; sums stay those of the tokens, for
/// any merges.
TEST(Retention, MergingConservesSumsOfKeysAndValues) {
  const Scenario scenario = scenario_with("chelsea");
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(60).has_value());
  const KvShape& shape = traffic.shape();
  EXPECT_EQ(drive.sequence().retention().dropped, 0U);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    std::vector<double> sums(2 * shape.head_dim);
    for (std::size_t p = sinks; p < drive.sequence().window().begin; ++p) {
      const auto row = traffic.row(0, head, p);
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] -= load_f32(row.data(), shape.dtype, i);
    }
    const EntryList& list = entries_of(drive.sequence(), 0, head);
    for (std::size_t entry = 0; entry < list.size(); ++entry) {
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += static_cast<double>(list.degrees[entry]) *
                   static_cast<double>(
                       load_f32(entry_row(drive.sequence(), 0, head, entry), shape.dtype, i));
      }
    }
    for (const double sum : sums) EXPECT_NEAR(sum, 0, 0.2);
  }
}

}  // namespace
}  // namespace terrace
