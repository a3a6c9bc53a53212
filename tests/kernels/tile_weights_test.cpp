// Weights of the rows of a tile: against the reference, and what their bits depend on.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/tile_scenario.hpp"
#include "kernels/weights_near.hpp"

namespace terrace {
namespace {

using testing::first_wrong_weight;
using testing::make_shape;
using testing::odd_offset;
using testing::run;
using testing::TileCase;
using testing::TileScenario;

constexpr auto scopes = {ListScope::kv_head, ListScope::query_head};

/// The state of each is its own: units differ.
void expect_like_reference(const TileCase& options) {
  SCOPED_TRACE(options.text());
  for (const ListScope scope : scopes) {
    TileScenario scenario(options);
    static_cast<void>(scenario.run_reference());
    const std::vector<float> expected = scenario.weigh_reference(scope);
    static_cast<void>(scenario.run());
    EXPECT_EQ(first_wrong_weight(scenario.weigh(scope), expected), "");
    EXPECT_TRUE(scenario.guards_intact());
  }
}

TEST(TileWeights, AgreeWithTheReferenceForEveryShape) {
  testing::for_each_tile_shape([](const TileCase& one) { expect_like_reference(one); });
}

TEST(TileWeights, AgreeWithTheReferenceForEveryNumberOfRowsSeen) {
  testing::for_each_tile_seen([](const TileCase& one) { expect_like_reference(one); });
}

TEST(TileWeights, AgreeWithTheReferenceForTheLargestHeads) {
  for (const TileCase& one : testing::tiles_of_largest_heads()) expect_like_reference(one);
}

TEST(TileWeights, OfAQueryHeadAddUpToTheNumberOfTokens) {
  TileScenario scenario(
      {.shape = make_shape(3, 2, 64, Dtype::f16), .rows = 1300, .tokens = 9, .seen = 1200});
  static_cast<void>(scenario.run(9, 512));
  const std::vector<float> sums = scenario.weigh(ListScope::query_head);
  for (std::size_t head = 0; head < 6; ++head) {
    double total = 0;
    for (std::size_t row = 0; row < 1300; ++row) total += double{sums[head * 1300 + row]};
    EXPECT_NEAR(total, 9, 1e-4) << head;
  }
}

TEST(TileWeights, DoNotDependOnHowTokensAndRowsAreSplit) {
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t group : {1U, 3U, 4U, 8U}) {
      for (const std::size_t head_dim : {6U, 64U}) {
        for (const std::ptrdiff_t seen : {-4, 120, 380, 700}) {
          if (!testing::takes_shape(number++)) continue;
          const TileCase options{.shape = make_shape(group, 2, head_dim, dtype),
                                 .rows = 700,
                                 .tokens = 11,
                                 .seen = seen};
          SCOPED_TRACE(options.text());
          TileScenario scenario(options);
          static_cast<void>(scenario.run());
          for (const ListScope scope : scopes) {
            const auto weigh = [&](std::size_t tokens, std::size_t rows) {
              return scenario.weigh(scope, tokens, rows, [](const TileWeights& op) { run(op); });
            };
            const std::vector<float> expected = scenario.weigh(scope);
            EXPECT_EQ(weigh(11, tile_split), expected);
            EXPECT_EQ(weigh(3, 2 * tile_split), expected);
            EXPECT_EQ(weigh(1, 4 * tile_split), expected);
            EXPECT_EQ(weigh(2, TileScenario::all_rows), expected);
          }
        }
      }
    }
  }
}

TEST(TileWeights, DoNotDependOnWhereRowsLie) {
  const TileCase here{
      .shape = make_shape(3, 2, 130, Dtype::f16), .rows = 600, .tokens = 3, .seen = 570};
  TileCase there = here;
  there.block_tokens = 7;
  there.misalignment = odd_offset(Dtype::f16);
  TileScenario near(here);
  TileScenario far(there);
  static_cast<void>(near.run());
  static_cast<void>(far.run());
  EXPECT_EQ(near.weigh(ListScope::kv_head), far.weigh(ListScope::kv_head));
}

TEST(TileWeights, AreThoseOfDecodeAttention) {
  const KvShape shape = make_shape(3, 2, 80, Dtype::bf16);
  TileScenario scenario({.shape = shape, .rows = 1100, .tokens = 1, .seen = 900});
  static_cast<void>(scenario.run(1, 512));
  const std::vector<float> sums = scenario.weigh(ListScope::kv_head);
  std::vector<float> output(scenario.query_floats());
  std::vector<float> scratch(attention_scratch_floats(shape, 1100));
  std::vector<float> logits(attention_weights_scratch_floats(shape, 1100));
  std::vector<float> weights(std::size_t{2} * 1100);
  const TileAttention last = scenario.op(0, 1, {0, 1100});
  run(DecodeAttention{.shape = shape,
                      .query = last.query,
                      .output = output.data(),
                      .resident = last.rows,
                      .window = {0, last.rows_seen(0)},
                      .scale = last.scale,
                      .scratch = scratch.data(),
                      .weights = {.sums = weights.data(), .stride = 1100},
                      .weights_scratch = logits.data()});
  EXPECT_EQ(first_wrong_weight(sums, weights), "");
}

TEST(TileWeights, AreAddedToWhatIsThere) {
  TileScenario scenario(
      {.shape = make_shape(2, 1, 16, Dtype::f16), .rows = 40, .tokens = 3, .seen = 38});
  static_cast<void>(scenario.run());
  const std::vector<float> once = scenario.weigh(ListScope::kv_head);
  const auto twice = scenario.weigh(ListScope::kv_head, 3, 40, [](const TileWeights& op) {
    for (std::size_t row = 0; row < op.tile.row_count; ++row) op.weights.sums[row] = 2;
    run(op);
  });
  for (std::size_t row = 0; row < 40; ++row) EXPECT_NEAR(twice[row], once[row] + 2, 1e-5F) << row;
}

TEST(TileWeights, DoNotReadRowsThatNoTokenSees) {
  TileScenario scenario({.shape = make_shape(2, 2, 64, Dtype::f16),
                         .block_tokens = 8,
                         .rows = 64,
                         .tokens = 3,
                         .seen = 30});
  static_cast<void>(scenario.run());
  const std::vector<float> expected = scenario.weigh(ListScope::kv_head);
  auto& blocks = scenario.store_.blocks();
  std::fill(blocks.begin() + 4, blocks.end(), nullptr);  // tokens see up to 32 rows
  EXPECT_EQ(scenario.weigh(ListScope::kv_head), expected);
}

TEST(TileWeights, AreNanInRowsThatATokenOfNanSees) {
  const TileCase options{
      .shape = make_shape(2, 1, 20, Dtype::f16), .rows = 600, .tokens = 6, .seen = 520};
  TileScenario scenario(options);
  // The last token: it alone sees the rows from 524 on.
  const std::size_t query_stride = scenario.op().query_stride;
  scenario.query_[5 * query_stride] = std::numeric_limits<float>::quiet_NaN();
  static_cast<void>(scenario.run());
  const std::vector<float> all = scenario.weigh(ListScope::query_head);
  const std::vector<float> others = scenario.weigh(ListScope::query_head, 5, 600, [](auto op) {
    if (op.tile.tokens == 5) run(op);
  });
  for (std::size_t row = 0; row < 600; ++row) {
    EXPECT_EQ(std::isnan(all[row]), row < 525) << row;  // head 0 has the NaN
    EXPECT_FALSE(std::isnan(all[600 + row])) << row;
    EXPECT_FALSE(std::isnan(others[row])) << row;
  }
}

TEST(TileWeights, AreNothingOfTokensWhoseLogitsAreAllMinusInfinity) {
  TileScenario scenario(
      {.shape = make_shape(1, 1, 2, Dtype::f32), .rows = 520, .tokens = 2, .seen = 519});
  for (std::size_t row = 0; row < 520; ++row) {
    store_f32(scenario.store_.row(0, row), Dtype::f32, 0, std::numeric_limits<float>::infinity());
  }
  for (float& x : scenario.query_) x = -1;
  static_cast<void>(scenario.run());
  for (const float sum : scenario.weigh(ListScope::kv_head)) EXPECT_EQ(sum, 0);
}

}  // namespace
}  // namespace terrace
