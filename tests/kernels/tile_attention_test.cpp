// Attention to tiles of rows: against the reference, and what its bits depend on.
#include <gtest/gtest.h>

#include "kernels/attention_scenario.hpp"
#include "kernels/tile_scenario.hpp"

namespace terrace {
namespace {

using testing::make_shape;
using testing::max_difference;
using testing::odd_offset;
using testing::TileCase;
using testing::TileScenario;

// As of decode attention: logits of size 1 are wrong by less than 1e-5, a weight by as much
// relatively, and so is a mean of values of size at most 5. Merging adds some roundings a piece.
constexpr double tolerance = 5e-5;

void expect_like_reference(const TileCase& options) {
  SCOPED_TRACE(options.text());
  TileScenario scenario(options);
  const std::vector<float> expected = scenario.run_reference();
  EXPECT_LE(max_difference(scenario.run(), expected), tolerance);
  EXPECT_TRUE(scenario.guards_intact());
}

TEST(TileAttention, AgreesWithTheReferenceForEveryShape) {
  testing::for_each_tile_shape([](const TileCase& one) { expect_like_reference(one); });
}

TEST(TileAttention, AgreesWithTheReferenceForEveryNumberOfRowsSeen) {
  testing::for_each_tile_seen([](const TileCase& one) { expect_like_reference(one); });
}

TEST(TileAttention, AgreesWithTheReferenceForTheLargestHeads) {
  for (const TileCase& one : testing::tiles_of_largest_heads()) expect_like_reference(one);
}

TEST(TileAttention, FindsAMissingRow) {
  TileScenario scenario(
      {.shape = make_shape(2, 2, 64, Dtype::f16), .rows = 600, .tokens = 4, .seen = 590});
  const std::vector<float> expected = scenario.run_reference();
  const auto output = scenario.attend(4, TileScenario::all_rows, [](TileAttention op) {
    op.seen -= 1;
    testing::run(op);
  });
  EXPECT_GT(max_difference(output, expected), tolerance);
}

TEST(TileAttention, TheReferenceIsThatOfDecodeAttention) {
  const KvShape shape = make_shape(2, 2, 16, Dtype::f32);
  TileScenario scenario({.shape = shape, .rows = 1500, .tokens = 5, .seen = 1300});
  const std::vector<float> tiles = scenario.attend(2, 512, kernels::reference::tile_attention);
  std::vector<float> decoded(scenario.query_floats());
  for (std::size_t token = 0; token < 5; ++token) {
    kernels::reference::decode_attention({.shape = shape,
                                          .query = scenario.op(token, 1, {0, 1500}).query,
                                          .output = decoded.data(),
                                          .resident = scenario.store_.table(),
                                          .window = {0, 1300 + token},
                                          .scale = 0.25F});
    const auto first = tiles.begin() + static_cast<std::ptrdiff_t>(token * decoded.size());
    const std::vector<float> of_token(first, first + static_cast<std::ptrdiff_t>(decoded.size()));
    // A state is rounded to f32 between three tiles.
    EXPECT_LE(max_difference(of_token, decoded), 1e-6);
  }
}

TEST(TileAttention, IsNearDecodeAttention) {
  const KvShape shape = make_shape(3, 2, 80, Dtype::bf16);
  TileScenario scenario({.shape = shape, .rows = 300, .tokens = 4, .seen = 250});
  const std::vector<float> tiles = scenario.run();
  std::vector<float> decoded(tiles.size());
  std::vector<float> scratch(attention_scratch_floats(shape, 300));
  for (std::size_t token = 0; token < 4; ++token) {
    const TileAttention op = scenario.op(token, 1, {0, 300});
    testing::run(DecodeAttention{.shape = shape,
                                 .query = op.query,
                                 .output = &decoded[token * scenario.query_floats()],
                                 .resident = op.rows,
                                 .window = {0, op.rows_seen(0)},
                                 .scale = op.scale,
                                 .scratch = scratch.data()});
  }
  EXPECT_LE(max_difference(tiles, decoded), tolerance);
}

TEST(TileAttention, DoesNotDependOnHowTokensAndRowsAreSplit) {
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
          const std::vector<float> expected = scenario.run();
          EXPECT_EQ(scenario.run(11, tile_split), expected);
          EXPECT_EQ(scenario.run(3, 2 * tile_split), expected);
          EXPECT_EQ(scenario.run(1, 4 * tile_split), expected);
          EXPECT_EQ(scenario.run(2, TileScenario::all_rows), expected);
        }
      }
    }
  }
}

TEST(TileAttention, DoesNotDependOnHowTheLargestHeadsAreSplit) {
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {576U, 1022U, 1024U}) {
      if (!testing::takes_shape(number++)) continue;
      const TileCase options{
          .shape = make_shape(5, 1, head_dim, dtype), .rows = 300, .tokens = 9, .seen = 290};
      SCOPED_TRACE(options.text());
      TileScenario scenario(options);
      const std::vector<float> expected = scenario.run();
      EXPECT_EQ(scenario.run(9, tile_split), expected);
      EXPECT_EQ(scenario.run(4, 2 * tile_split), expected);
      EXPECT_EQ(scenario.run(1, TileScenario::all_rows), expected);
      EXPECT_LE(max_difference(expected, scenario.run_reference()), tolerance);
    }
  }
}

TEST(TileAttention, TakesAnyNumberOfTokens) {
  const TileCase options{
      .shape = make_shape(3, 2, 64, Dtype::f16), .rows = 200, .tokens = 130, .seen = -10};
  TileScenario scenario(options);
  const std::vector<float> expected = scenario.run();
  EXPECT_LE(max_difference(expected, scenario.run_reference()), tolerance);
  // Up to a part's heads and beyond, few of them and many.
  for (const std::size_t tokens : {1U, 2U, 3U, 4U, 5U, 42U, 43U, 100U}) {
    EXPECT_EQ(scenario.run(tokens, TileScenario::all_rows), expected) << tokens << " tokens a call";
  }
}

TEST(TileAttention, TilesOfOtherLengthsGiveOtherBits) {
  // The promise for multiples of `tile_split` does not hold for other sizes.
  TileScenario scenario(
      {.shape = make_shape(2, 1, 64, Dtype::f16), .block_tokens = 8, .rows = 500, .seen = 500});
  const std::vector<float> expected = scenario.run();
  EXPECT_NE(scenario.run(1, 40), expected);
  EXPECT_LE(max_difference(scenario.run(1, 40), expected), tolerance);
}

TEST(TileAttention, DoesNotDependOnWhereRowsLie) {
  const TileCase here{
      .shape = make_shape(3, 2, 130, Dtype::f16), .rows = 600, .tokens = 3, .seen = 570};
  TileCase there = here;
  there.block_tokens = 7;
  there.misalignment = odd_offset(Dtype::f16);
  EXPECT_EQ(TileScenario(here).run(), TileScenario(there).run());
}

TEST(TileAttention, GoesOnFromAStateWithoutAnyRow) {
  TileScenario scenario(
      {.shape = make_shape(2, 1, 16, Dtype::f16), .rows = 40, .tokens = 3, .seen = 38});
  const std::vector<float> expected = scenario.run();
  const auto output = scenario.attend(3, TileScenario::all_rows, [](TileAttention op) {
    TileAttention nothing = op;
    nothing.output = nullptr;
    nothing.row_count = 0;
    nothing.rows = {};
    testing::run(nothing);
    op.first = false;
    testing::run(op);
  });
  EXPECT_EQ(output, expected);
}

TEST(TileAttention, WritesNoOutputBeforeTheLastTile) {
  TileScenario scenario(
      {.shape = make_shape(2, 1, 16, Dtype::f16), .rows = 40, .tokens = 3, .seen = 38});
  const auto output = scenario.attend(3, TileScenario::all_rows, [](TileAttention op) {
    op.output = nullptr;
    testing::run(op);
  });
  for (const float x : output) EXPECT_TRUE(std::isnan(x));
}

TEST(TileAttention, WritesZerosWhereNothingIsSeen) {
  TileScenario scenario(
      {.shape = make_shape(2, 2, 6, Dtype::f16), .rows = 20, .tokens = 5, .seen = -2});
  const std::vector<float> output = scenario.run();
  for (std::size_t i = 0; i < output.size(); ++i) {
    EXPECT_EQ(output[i] == 0.0F, i < 3 * scenario.query_floats()) << i;
  }
}

TEST(TileAttention, DoesNotReadRowsThatNoTokenSees) {
  TileScenario scenario({.shape = make_shape(2, 2, 64, Dtype::f16),
                         .block_tokens = 8,
                         .rows = 64,
                         .tokens = 3,
                         .seen = 30});
  const std::vector<float> expected = scenario.run();
  auto& blocks = scenario.store_.blocks();
  std::fill(blocks.begin() + 4, blocks.end(), nullptr);  // tokens see up to 32 rows
  EXPECT_EQ(scenario.run(), expected);
}

class TileAttentionOfOddNumbers : public ::testing::TestWithParam<Dtype> {
 protected:
  // Two pieces; tokens 0 and 1 do not see row 520, which is set.
  TileAttentionOfOddNumbers()
      : scenario_(
            {.shape = make_shape(2, 1, 20, GetParam()), .rows = 600, .tokens = 6, .seen = row}) {}

  /// Sets element i of a row of key and value.
  void set(std::size_t position, std::size_t i, float value) {
    store_f32(scenario_.store_.row(0, position), GetParam(), i, value);
  }
  /// Sets element i of the queries of a token.
  void set_query(std::size_t token, std::size_t i, float value) {
    const auto at = scenario_.op(token, 1, {0, 600}).query - scenario_.query_.data();
    for (std::size_t head = 0; head < 2; ++head) {
      scenario_.query_[static_cast<std::size_t>(at) + head * 20 + i] = value;
    }
  }
  /// Expects NaN of each token that sees the row, and the other tokens' outputs as they were.
  void expect_nan_of_tokens_that_see(const std::vector<float>& before) {
    for (const std::size_t tile_rows : {std::size_t{512}, TileScenario::all_rows}) {
      const std::vector<float> output = scenario_.run(6, tile_rows);
      for (std::size_t i = 0; i < output.size(); ++i) {
        const bool sees = i >= scenario_.query_floats();
        EXPECT_TRUE(sees ? std::isnan(output[i]) : output[i] == before[i]) << i;
      }
    }
  }

  static constexpr std::size_t row = 520;
  TileScenario scenario_;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, TileAttentionOfOddNumbers,
                         ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

TEST_P(TileAttentionOfOddNumbers, GivesNanForANanKeyToThoseThatSeeIt) {
  const std::vector<float> before = scenario_.run();
  set(row, 19, std::nanf(""));
  expect_nan_of_tokens_that_see(before);
}

TEST_P(TileAttentionOfOddNumbers, GivesNanForANanValueToThoseThatSeeIt) {
  const std::vector<float> before = scenario_.run();
  for (std::size_t i = 20; i < 40; ++i) set(row, i, std::nanf(""));
  expect_nan_of_tokens_that_see(before);
}

TEST_P(TileAttentionOfOddNumbers, GivesNanForALogitOfPlusInfinityToThoseThatSeeIt) {
  for (std::size_t token = 0; token < 6; ++token) set_query(token, 3, 1);
  const std::vector<float> before = scenario_.run();
  set(row, 3, HUGE_VALF);
  expect_nan_of_tokens_that_see(before);
}

TEST_P(TileAttentionOfOddNumbers, KeepsANanOfAnEarlierTile) {
  set(5, 19, std::nanf(""));
  for (const float x : scenario_.run(6, 512)) EXPECT_TRUE(std::isnan(x));
}

TEST_P(TileAttentionOfOddNumbers, LeavesOutLogitsOfMinusInfinity) {
  for (std::size_t token = 0; token < 6; ++token) set_query(token, 3, 1);
  set(20, 3, -HUGE_VALF);
  for (std::size_t p = 512; p < 600; ++p) set(p, 3, -HUGE_VALF);
  const std::vector<float> expected = scenario_.run_reference();
  EXPECT_LE(max_difference(scenario_.run(), expected), tolerance);
  // A piece of such rows that comes first does not change the results of later pieces.
  for (std::size_t p = 0; p < 512; ++p) set(p, 3, -HUGE_VALF);
  for (std::size_t p = 512; p < 600; ++p) set(p, 3, 0);
  const std::vector<float> second = scenario_.run_reference();
  EXPECT_LE(max_difference(scenario_.run(), second), tolerance);
}

TEST_P(TileAttentionOfOddNumbers, TakesPiecesWhoseLogitsAreFarApart) {
  // exp(1000 / sqrt(20)) is no float: whichever piece it is in, the other one's weights vanish.
  for (std::size_t token = 0; token < 6; ++token) set_query(token, 3, 1);
  for (const std::size_t position : {std::size_t{20}, row}) {
    set(position, 3, 1000);
    const std::vector<float> expected = scenario_.run_reference();
    EXPECT_LE(max_difference(scenario_.run(), expected), tolerance);
    EXPECT_LE(max_difference(scenario_.run(6, 512), expected), tolerance);
    set(position, 3, 0);
  }
}

TEST_P(TileAttentionOfOddNumbers, GivesZerosWhenAllLogitsAreMinusInfinity) {
  for (std::size_t token = 0; token < 6; ++token) set_query(token, 3, 1);
  for (std::size_t p = 0; p < 600; ++p) set(p, 3, -HUGE_VALF);
  for (const float x : scenario_.run()) EXPECT_EQ(x, 0.0F);
}

}  // namespace
}  // namespace terrace
