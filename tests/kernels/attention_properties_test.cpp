// Properties of attention for any numbers: independence of places, and closed forms.
#include <gtest/gtest.h>

#include "kernels/attention_scenario.hpp"

namespace terrace {
namespace {

using testing::AttentionCase;
using testing::AttentionScenario;
using testing::BlockStore;
using testing::make_shape;
using testing::max_difference;
using testing::odd_offset;

TEST(DecodeAttention, DoesNotDependOnWhereRowsLie) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {6U, 64U, 130U}) {
      const AttentionCase options{.shape = make_shape(3, 2, head_dim, dtype),
                                  .block_tokens = 32,
                                  .sinks = 4,
                                  .window = 600,
                                  .selected = 50};
      SCOPED_TRACE(options.text());
      AttentionScenario here(options);
      AttentionCase moved = options;
      moved.block_tokens = 3;
      moved.misalignment = odd_offset(dtype);
      AttentionScenario there(moved);
      // The same rows in other blocks, and the selected ones as copies in a staging area.
      const std::size_t off = 3 * odd_offset(dtype);
      std::vector<std::byte> staging(there.selected_.size() * options.shape.row_bytes() + off);
      for (std::size_t i = 0; i < there.selected_.size(); ++i) {
        std::byte* copy = staging.data() + off + i * options.shape.row_bytes();
        std::copy_n(here.selected_[i], options.shape.row_bytes(), copy);
        there.selected_[i] = copy;
      }
      EXPECT_EQ(here.run(), there.run());
    }
  }
}

TEST(DecodeAttention, DoesNotDependOnHowTheListIsSplitIntoSinksWindowAndSelected) {
  AttentionScenario scenario({.shape = make_shape(2, 1, 64, Dtype::f16), .window = 1000});
  const std::vector<float> expected = scenario.run();
  const std::size_t begin = scenario.tokens() - 1000;
  for (const std::size_t cut : {0U, 1U, 16U, 511U, 512U, 999U, 1000U}) {
    std::vector<float> output(expected.size());
    DecodeAttention op = scenario.op(output.data());
    op.sinks = {begin, begin + cut / 2};
    op.window = {begin + cut / 2, begin + cut};
    std::vector<std::byte*> rows;
    for (std::size_t p = begin + cut; p < begin + 1000; ++p) {
      rows.push_back(scenario.store_.row(0, p));
    }
    const std::vector<std::uint32_t> count(1, static_cast<std::uint32_t>(rows.size()));
    op.selected = rows.data();
    op.selected_count = count.data();
    op.selected_stride = rows.size();
    testing::run(op);
    EXPECT_EQ(output, expected) << "cut at " << cut;
  }
}

TEST(DecodeAttention, DoesNotDependOnTheRoomThatThereIsForMore) {
  AttentionScenario scenario(
      {.shape = make_shape(2, 2, 64, Dtype::bf16), .window = 100, .selected = 20});
  const std::vector<float> expected = scenario.run();
  std::vector<float> output(scenario.query_.size());
  std::vector<std::byte*> selected(2 * 600);
  std::vector<float> scratch(attention_scratch_floats(scenario.options_.shape, 800));
  DecodeAttention op = scenario.op(output.data());
  for (std::size_t list = 0; list < 2; ++list) {
    std::copy_n(op.selected + list * op.selected_stride, scenario.selected_count_[list],
                selected.begin() + static_cast<std::ptrdiff_t>(list * 600));
  }
  op.selected = selected.data();
  op.selected_stride = 600;
  op.scratch = scratch.data();
  testing::run(op);
  EXPECT_EQ(output, expected);
}

TEST(DecodeAttention, GivesAHeadTheSameBitsInAnyGroup) {
  // Query head h of a group of 8 and the same query alone: which heads share a pass is invisible.
  AttentionScenario together(
      {.shape = make_shape(11, 1, 130, Dtype::f16), .window = 530, .selected = 3});
  const std::vector<float> expected = together.run();
  for (std::size_t head = 0; head < 11; ++head) {
    std::vector<float> output(130);
    DecodeAttention op = together.op(output.data());
    op.shape.query_heads = 1;
    op.query += head * 130;
    testing::run(op);
    EXPECT_TRUE(std::equal(output.begin(), output.end(),
                           expected.begin() + static_cast<std::ptrdiff_t>(head) * 130))
        << head;
  }
}

TEST(DecodeAttention, GivesListsThatAreEqualTheSameBitsUnderEitherScope) {
  AttentionScenario scenario(
      {.shape = make_shape(4, 2, 64, Dtype::bf16), .sinks = 3, .window = 90, .selected = 40});
  std::fill(scenario.selected_count_.begin(), scenario.selected_count_.end(), 40U);
  const std::vector<float> expected = scenario.run();
  std::vector<std::byte*> rows;
  for (std::size_t head = 0; head < 8; ++head) {
    for (std::size_t i = 0; i < 40; ++i) {
      rows.push_back(scenario.selected_[head / 4 * scenario.stride() + i]);
    }
  }
  const std::vector<std::uint32_t> counts(8, 40);
  std::vector<float> output(expected.size());
  DecodeAttention op = scenario.op(output.data());
  op.scope = ListScope::query_head;
  op.selected = rows.data();
  op.selected_count = counts.data();
  op.selected_stride = 40;
  testing::run(op);
  EXPECT_EQ(output, expected);
}

TEST(DecodeAttention, IsTheMeanOfValuesWhenAllKeysAreEqual) {
  AttentionScenario scenario({.shape = make_shape(2, 1, 64, Dtype::f32), .window = 700});
  scenario.store_.fill([](std::size_t p, std::size_t, std::size_t i) {
    return i < 64 ? 0.5F : static_cast<float>(p % 10);
  });
  double mean = 0;
  for (std::size_t p = 7; p < 707; ++p) mean += static_cast<double>(p % 10) / 700;
  // 700 equal weights: sums of small whole numbers are exact, the division rounds twice.
  for (const float x : scenario.run()) EXPECT_NEAR(double{x}, mean, 1e-6 * mean);
}

TEST(DecodeAttention, IsTheValueOfTheOnlyEntry) {
  AttentionScenario scenario({.shape = make_shape(2, 1, 6, Dtype::f16), .window = 1});
  const std::vector<float> output = scenario.run();
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(output[i], scenario.store_.key(0, scenario.tokens() - 1, 6 + i % 6));
  }
}

TEST(DecodeAttention, TakesABiasOfLogTwoForAnEntryTwice) {
  // Renormalised attention: exp(l + log 2) = 2 exp(l), the identity pseudo-entries rest on.
  AttentionScenario scenario({.shape = make_shape(1, 1, 64, Dtype::f32), .selected = 20});
  std::vector<float> biased(64);
  DecodeAttention op = scenario.op(biased.data());
  std::vector<float> bias(20, 0.0F);
  bias[7] = std::log(2.0F);
  op.selected_bias = bias.data();
  testing::run(op);
  std::vector<std::byte*> rows(scenario.selected_.begin(), scenario.selected_.begin() + 20);
  rows.push_back(rows[7]);
  const std::vector<std::uint32_t> count(1, 21);
  std::vector<float> repeated(64);
  op = scenario.op(repeated.data());
  op.selected = rows.data();
  op.selected_count = count.data();
  testing::run(op);
  EXPECT_LE(max_difference(biased, repeated), 1e-5);  // two roundings of sums of 20 terms below 5
}

TEST(DecodeAttention, TakesAPseudoEntryLikeARow) {
  AttentionScenario scenario(
      {.shape = make_shape(2, 2, 64, Dtype::f16), .selected = 20, .pseudo = 5});
  std::fill(scenario.selected_count_.begin(), scenario.selected_count_.end(), 20U);
  const std::vector<float> expected = scenario.run();
  std::vector<std::byte*> rows;
  for (std::size_t list = 0; list < 2; ++list) {
    const std::size_t first = list * scenario.stride();
    for (std::size_t i = 0; i < 20; ++i) rows.push_back(scenario.selected_[first + i]);
    for (std::size_t i = 0; i < 5; ++i) {
      rows.push_back(const_cast<std::byte*>(scenario.pseudo_rows_[first + i]));
    }
  }
  const std::vector<std::uint32_t> counts(2, 25);
  std::vector<float> output(expected.size());
  DecodeAttention op = scenario.op(output.data());
  op.pseudo = {};
  op.selected = rows.data();
  op.selected_count = counts.data();
  op.selected_stride = 25;
  testing::run(op);
  EXPECT_EQ(output, expected);
}

}  // namespace
}  // namespace terrace
