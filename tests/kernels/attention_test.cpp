// Decode attention against the reference, over shapes, dtypes and lists.
#include <gtest/gtest.h>

#include "kernels/attention_scenario.hpp"
#include "kernels/attention_shapes.hpp"

namespace terrace {
namespace {

using testing::AttentionCase;
using testing::AttentionScenario;
using testing::make_shape;
using testing::max_difference;
using testing::odd_offset;

// Elements are of size 1 (normal), logits of size 1, so a logit of d products is wrong by a few
// units of 2^-24 * sqrt(d) <= 1e-5, a weight by as much relatively, and so is a mean of values
// of size at most 5. Dropping one entry of n changes the result by about 1 / n, n < 1000.
constexpr double tolerance = 5e-5;

void expect_like_reference(const AttentionCase& options) {
  SCOPED_TRACE(options.text());
  AttentionScenario scenario(options);
  const std::vector<float> expected = scenario.run_reference();
  EXPECT_LE(max_difference(scenario.run(), expected), tolerance);
  EXPECT_TRUE(scenario.guards_intact());
}

TEST(DecodeAttention, AgreesWithTheReferenceForEveryShape) {
  testing::for_each_attention_shape(testing::attention_groups,
                                    [](const KvShape& shape, std::size_t off) {
                                      expect_like_reference({.shape = shape,
                                                             .block_tokens = 3,
                                                             .sinks = 5,
                                                             .window = 40,
                                                             .selected = 23,
                                                             .misalignment = off});
                                    });
}

TEST(DecodeAttention, AgreesWithTheReferenceForEveryList) {
  std::size_t number = 0;
  for (const std::size_t block_tokens : {1U, 3U, 32U, 128U}) {
    for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
      for (const std::size_t count : {1U, 15U, 16U, 17U, 511U, 512U, 513U, 700U}) {
        if (!testing::takes_shape(number++)) continue;
        expect_like_reference({.shape = make_shape(2, 2, 64, Dtype::f16),
                               .block_tokens = block_tokens,
                               .sinks = 4,
                               .window = count,
                               .selected = count,
                               .pseudo = 19,
                               .scope = scope,
                               .biased = count % 2 == 1,
                               .misalignment = odd_offset(Dtype::f16)});
      }
    }
  }
}

TEST(DecodeAttention, AgreesWithTheReferenceForTheLargestHeads) {
  expect_like_reference({.shape = make_shape(9, 1, 1024, Dtype::f32), .window = 70});
  expect_like_reference({.shape = make_shape(4, 1, 1022, Dtype::bf16), .window = 70});
}

// A device merges as many pieces at a time as a block has threads.
TEST(DecodeAttention, AgreesWithTheReferenceForManyPieces) {
  expect_like_reference({.shape = make_shape(2, 1, 8, Dtype::f16), .window = 17000});
}

TEST(DecodeAttention, FindsAMissingEntry) {
  AttentionScenario scenario({.shape = make_shape(2, 2, 64, Dtype::f16), .window = 500});
  std::vector<float> output(scenario.query_.size());
  DecodeAttention op = scenario.op(output.data());
  op.window.begin += 1;
  testing::run(op);
  EXPECT_GT(max_difference(output, scenario.run_reference()), tolerance);
}

TEST(DecodeAttention, WritesZerosWithoutEntries) {
  AttentionScenario scenario({.shape = make_shape(2, 2, 6, Dtype::f16)});
  for (const float x : scenario.run()) EXPECT_EQ(x, 0.0F);
  EXPECT_TRUE(scenario.guards_intact());
}

class DecodeAttentionOfOddNumbers : public ::testing::TestWithParam<Dtype> {
 protected:
  DecodeAttentionOfOddNumbers()
      : scenario_({.shape = make_shape(2, 1, 20, GetParam()), .window = 30}) {}

  void set_key(std::size_t position, std::size_t i, float value) {
    store_f32(scenario_.store_.row(0, position), GetParam(), i, value);
  }

  AttentionScenario scenario_;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, DecodeAttentionOfOddNumbers,
                         ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

TEST_P(DecodeAttentionOfOddNumbers, GivesNanForANanKey) {
  set_key(20, 19, std::nanf(""));
  for (const float x : scenario_.run()) EXPECT_TRUE(std::isnan(x));
}

TEST_P(DecodeAttentionOfOddNumbers, GivesNanForALogitOfPlusInfinity) {
  scenario_.query_[3] = 1;
  set_key(20, 3, HUGE_VALF);
  const std::vector<float> output = scenario_.run();
  for (std::size_t i = 0; i < 20; ++i) EXPECT_TRUE(std::isnan(output[i]));
}

TEST_P(DecodeAttentionOfOddNumbers, LeavesOutALogitOfMinusInfinity) {
  scenario_.query_[3] = scenario_.query_[23] = 1;
  set_key(20, 3, -HUGE_VALF);
  EXPECT_LE(max_difference(scenario_.run(), scenario_.run_reference()), tolerance);
}

TEST_P(DecodeAttentionOfOddNumbers, GivesZerosWhenAllLogitsAreMinusInfinity) {
  scenario_.query_[3] = scenario_.query_[23] = 1;
  for (std::size_t p = 0; p < scenario_.tokens(); ++p) set_key(p, 3, -HUGE_VALF);
  for (const float x : scenario_.run()) EXPECT_EQ(x, 0.0F);
}

TEST_P(DecodeAttentionOfOddNumbers, ReadsDenormals) {
  const float tiny = GetParam() == Dtype::f16 ? 0x1p-24F : 0x1p-130F;
  scenario_.store_.fill([tiny](std::size_t p, std::size_t, std::size_t i) {
    return static_cast<float>((p + i) % 7) * tiny;
  });
  const std::vector<float> expected = scenario_.run_reference();
  EXPECT_LE(max_difference(scenario_.run(), expected), 1e-5 * double{tiny});
}

}  // namespace
}  // namespace terrace
