// Policies that choose by the weights that attention gives, which have to reach them whole and in
// one order; and what cam does with values.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "runtime/batch.hpp"
#include "runtime/retained.hpp"
#include "terrace/core/dtype.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Drive;
using testing::Scenario;
using testing::StepOutput;
using testing::Traffic;
using namespace testing::retained;

/// Policies that choose by the weights of all queries, which attention gives. Prompts come in
/// steps.
class EachWeighing : public ::testing::TestWithParam<std::string> {
 protected:
  EachWeighing() { scenario_.runtime.retention.base = "h2o"; }

  [[nodiscard]] std::vector<StepOutput> life(std::size_t piece, std::size_t draft) const {
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    const auto decode = [&] {  // up to the second flush, and one token more
      for (std::size_t done = 0; done < 2 * window; done += draft) {
        const std::size_t tokens = std::min(draft, 2 * window - done);
        batch.expect_step(std::array{BatchMember{0, tokens}});
      }
      batch.expect_step(std::array<std::size_t, 1>{0});
    };
    batch.expect_prompt(0, 300, piece);
    decode();
    batch.expect_prompt(0, 70, piece);  // a second turn
    decode();
    expect_conservation(batch.sequence(0), batch.traffic(0));
    return batch.outputs(0);
  }

  Scenario scenario_ = scenario_with(GetParam());
};

TEST_P(EachWeighing, GivesTheSameBitsHoweverAPromptAndADraftAreCut) {
  const std::vector<StepOutput> whole = life(1000, 1);
  EXPECT_EQ(life(64, 5), whole);
  if (testing::scenario_slowness == 1) {
    EXPECT_EQ(life(7, 3), whole);
  }
}

TEST_P(EachWeighing, CountsNoWeightsOfTokensThatWereRejectedOrGivenUp) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  batch.give_step_up(std::array{BatchMember{0, 300}}, 2);
  batch.expect_step(std::array{BatchMember{0, 300}});
  for (std::size_t i = 0; i < 40; ++i) {
    if (i % 3 == 0) batch.give_step_up(std::array{BatchMember{0, 1}}, 1 + i % 2);
    // A draft that no flush is due amid.
    if (i % 4 == 0 && i % window < window - 4) {
      const std::size_t none = 0;
      batch.expect_step(std::array{BatchMember{0, 3}}, {&none, 1});
    }
    batch.expect_step(std::array<std::size_t, 1>{0});
  }
  const auto again = scenario_.open();
  Batch plain(*again, 1);
  plain.expect_step(std::array{BatchMember{0, 300}});
  for (std::size_t i = 0; i < 40; ++i) plain.expect_step(std::array<std::size_t, 1>{0});
  EXPECT_EQ(batch.outputs(0), plain.outputs(0));
}

/// The scores are the sums of softmax weights, from the engine or from Terrace.
TEST_P(EachWeighing, KeepsWhatDrewMostWeight) {
  scenario_.runtime.retention.normalise = false;
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  batch.expect_step(std::array{BatchMember{0, 120}});
  batch.expect_step(std::array<std::size_t, 1>{0});
  const Traffic& traffic = batch.traffic(0);
  const KvShape& shape = traffic.shape();
  const std::size_t leaving = 120 - window;
  std::vector<double> sums(120);
  for (std::size_t position = 0; position < 120; ++position) {
    const std::vector<float> queries = traffic.query(1, position);
    for (std::size_t query = 0; query < shape.group(); ++query) {  // of KV head 0
      std::vector<double> powers;
      for (std::size_t p = 0; p <= position; ++p) {
        const auto row = traffic.row(1, 0, p);
        double dot = 0;
        for (std::size_t i = 0; i < shape.head_dim; ++i) {
          dot += static_cast<double>(queries[query * shape.head_dim + i]) *
                 static_cast<double>(load_f32(row.data(), shape.dtype, i));
        }
        powers.push_back(std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim))));
      }
      const double total = std::accumulate(powers.begin(), powers.end(), 0.0);
      for (std::size_t p = 0; p <= position; ++p) sums[p] += powers[p] / total;
    }
  }
  const EntryList& list = entries_of(batch.sequence(0), 1, 0);
  double least_kept = 1e9;
  double most_dropped = 0;
  for (std::size_t p = sinks; p < leaving; ++p) {
    const bool kept = std::ranges::binary_search(list.positions, static_cast<std::uint32_t>(p));
    if (kept) least_kept = std::min(least_kept, sums[p]);
    if (!kept) most_dropped = std::max(most_dropped, sums[p]);
  }
  if (GetParam() == "h2o") {
    EXPECT_GE(least_kept, most_dropped * (1 - 1e-4));
  } else {
    EXPECT_LT(least_kept, most_dropped);  // representatives, and the last tokens, drew less
  }
}

TEST_P(EachWeighing, GoesOnAsIfNothingWereBehindAPauseAForkAndOthersOfABatch) {
  const auto feed = [](Batch& batch, std::size_t i, std::size_t tokens) {
    batch.expect_step(std::array{BatchMember{i, tokens}});
  };
  const auto alone = scenario_.open();
  Batch one(*alone, 1);
  feed(one, 0, 200);
  for (std::size_t i = 0; i < 60; ++i) one.expect_step(std::array<std::size_t, 1>{0});
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 2);
  feed(batch, 1, 90);
  feed(batch, 0, 200);
  for (std::size_t i = 0; i < 30; ++i) batch.expect_step(std::array<std::size_t, 2>{1, 0});
  ASSERT_TRUE(batch.sequence(0).pause().has_value());
  ASSERT_TRUE(batch.sequence(0).resume().has_value());
  auto forked = batch.sequence(0).fork();
  ASSERT_TRUE(forked.has_value()) << forked.error().message();
  Drive twin(std::move(*forked), *runtime, batch.traffic(0));
  for (std::size_t i = 0; i < 30; ++i) batch.expect_step(std::array<std::size_t, 2>{0, 1});
  ASSERT_TRUE(twin.steps(30).has_value());
  EXPECT_EQ(batch.outputs(0), one.outputs(0));
  EXPECT_TRUE(std::equal(twin.outputs().begin(), twin.outputs().end(), one.outputs(0).end() - 30));
}

INSTANTIATE_TEST_SUITE_P(Policies, EachWeighing, ::testing::Values("h2o", "kvcrush", "cam"),
                         [](const auto& one) { return one.param; });

/// Values of tokens that go are added to others': those rows are no token's any more.
TEST(Cam, ReadsNoRowThatHasTakenGiftsAsATokens) {
  const Scenario scenario = scenario_with("cam");
  const auto runtime = scenario.open();
  Batch batch(*runtime, 1);
  batch.expect_step(std::array{BatchMember{0, 200}});
  batch.expect_step(std::array<std::size_t, 1>{0});
  const KvShape& shape = scenario.runtime.shape;
  const std::size_t lists = shape.layers * shape.kv_heads;
  EXPECT_EQ(batch.sequence(0).retention().kept, lists * middle);  // a prompt hands nothing on
  for (std::size_t i = 0; i < 40; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
  const RetentionReport report = batch.sequence(0).retention();
  EXPECT_EQ(report.flushes, 3U);
  EXPECT_GT(report.merged, 0U);
  EXPECT_EQ(report.kept + report.merged, lists * middle);
  expect_conservation(batch.sequence(0), batch.traffic(0));
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const EntryList& list = entries_of(batch.sequence(0), layer, head);
      for (std::size_t i = 0; i < list.size(); ++i) {
        const auto row = batch.traffic(0).row(layer, head, list.positions[i]);
        const std::byte* const entry = entry_row(batch.sequence(0), layer, head, i);
        const std::size_t key = shape.row_bytes() / 2;
        EXPECT_TRUE(std::equal(entry, entry + key, row.begin())) << "keys stay as they are";
        EXPECT_EQ(std::equal(entry, entry + row.size(), row.begin()), list.is_token(i));
      }
    }
  }
}

}  // namespace
}  // namespace terrace
