// Selections by some channels of keys against the reference.
#include <gtest/gtest.h>

#include "kernels/kernel_run.hpp"
#include "kernels/selected.hpp"
#include "kernels/selection_check.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::ChannelIndex;
using testing::is_top;
using testing::KeyIndex;
using testing::make_shape;
using testing::run;
using testing::Selected;
using testing::selection_tolerance;
using testing::takes_shape;

constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                         GroupReduction::sum_logits};
constexpr TokenRange candidates{9, 815};

void expect_top(const KvShape& shape, ChannelShape channels, std::size_t count,
                GroupReduction reduction) {
  SCOPED_TRACE(testing::to_text(shape) + ", " + std::to_string(channels.count) + " channels" +
               (channels.partial ? " stored" : "") + ", count " + std::to_string(count) + ", " +
               testing::seed_text());
  BlockStore store(shape, 32, 820);
  store.fill_normal(8);
  const ChannelIndex index(store, channels, 150, {4, 820});
  Selected selected(shape, candidates, count);
  const ChannelSelect op{
      .common = selected.common(reduction), .channels = channels, .index = index.view()};
  run(op);
  testing::expect_top(op, kernels::reference::channel_weights);
  EXPECT_TRUE(selected.intact());
}

TEST(ChannelSelect, ChoosesTheLargestWeightsForEveryShape) {
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {2U, 6U, 64U, 80U, 130U}) {
      for (const std::size_t group : {1U, 2U, 3U, 4U, 7U, 8U}) {
        for (const std::size_t count : {0U, 1U, 20U, 1000U}) {
          if (!takes_shape(number++)) continue;
          const std::size_t channels = 1 + number % head_dim;
          expect_top(make_shape(group, 2, head_dim, dtype),
                     {.count = channels, .partial = number % 3 == 0}, count, reductions[group % 3]);
        }
      }
    }
  }
}

TEST(ChannelSelect, FindsAWrongCandidate) {
  const KvShape shape = make_shape(4, 1, 64, Dtype::f16);
  BlockStore store(shape, 32, 200);
  store.fill_normal(8);
  constexpr ChannelShape channels{.count = 16};
  const ChannelIndex index(store, channels, 64, {0, 200});
  Selected selected(shape, {0, 200}, 20);
  const ChannelSelect op{
      .common = selected.common({}), .channels = channels, .index = index.view()};
  run(op);
  std::vector<double> weights(200);
  kernels::reference::channel_weights(op, 0, weights.data());
  std::vector<std::uint32_t> ids(selected.ids(0).begin(), selected.ids(0).end());
  ASSERT_TRUE(is_top(ids, 0, 20, weights, selection_tolerance));
  ids.back() = ids.back() == 199 ? 198 : 199;
  EXPECT_FALSE(is_top(ids, 0, 20, weights, selection_tolerance)) << testing::seed_text();
}

// If all channels are read a score is exact, and the share is 1.
TEST(ChannelSelect, WeighsAllChannelsAsExactScoresAreWeighed) {
  for (const std::size_t group : {1U, 4U}) {
    for (const bool partial : {false, true}) {
      const KvShape shape = make_shape(group, 2, 64, Dtype::f16);
      BlockStore store(shape, 32, 820);
      store.fill_normal(8);
      const ChannelShape channels{.count = 64, .partial = partial};
      const ChannelIndex index(store, channels, 64, {4, 820});
      const KeyIndex keys(store, 64, {4, 820});
      Selected selected(shape, candidates, 50);
      const SelectCommon common = selected.common(GroupReduction::sum_softmax);
      run(ChannelSelect{.common = common, .channels = channels, .index = index.view()});
      const ExactSelect exact{.common = common, .index = keys.view()};
      testing::expect_top(exact, kernels::reference::exact_weights);
    }
  }
}

/// Selects 10 of 40 tokens of one KV head by 2 of 4 channels. Token t has 1 in channel t % 4 and is
/// 0 elsewhere, so that the positions say which channels were read.
std::vector<std::uint32_t> select_by_two(std::size_t group, const std::vector<float>& queries) {
  const KvShape shape = make_shape(group, 1, 4, Dtype::f32);
  BlockStore store(shape, 16, 40);
  store.fill([](std::size_t p, std::size_t, std::size_t i) { return p % 4 == i ? 1.0F : 0.0F; });
  const ChannelIndex index(store, {.count = 2}, 64, {0, 40});
  Selected selected(shape, {0, 40}, 10);
  selected.query_ = queries;
  Selected expected = selected;
  run(ChannelSelect{.common = selected.common(GroupReduction::sum_softmax),
                    .channels = {.count = 2},
                    .index = index.view()});
  kernels::reference::channel_select({.common = expected.common(GroupReduction::sum_softmax),
                                      .channels = {.count = 2},
                                      .index = index.view()});
  EXPECT_TRUE(std::ranges::equal(selected.ids(0), expected.ids(0)));
  return {selected.ids(0).begin(), selected.ids(0).end()};
}

const std::vector<std::uint32_t> first{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

/// The positions with keys that are 1 in a channel.
std::vector<std::uint32_t> positions_of(std::uint32_t channel) {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t p = channel; p < 40; p += 4) positions.push_back(p);
  return positions;
}

TEST(ChannelSelect, ReadsTheChannelsThatTheGroupIsLargestIn) {
  // Channels 3 and 1 have the largest sums of |q|; of these 1 is positive.
  EXPECT_EQ(select_by_two(2, {1, 2, 1, -9, 1, 2, 1, -9}), positions_of(1));
  // Alone the first query would read 0, which the second outvotes.
  EXPECT_EQ(select_by_two(2, {5, 4, 0, 0, 0, 4, 6, 0}), positions_of(1));
}

TEST(ChannelSelect, ReadsTheLowerChannelsOfTies) {
  EXPECT_EQ(select_by_two(1, {-2, 2, 2, 2}), positions_of(1));
}

TEST(ChannelSelect, ChoosesTheFirstForAQueryThatIsNotFinite) {
  for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    EXPECT_EQ(select_by_two(1, {1, odd, 3, 4}), first);
    // The other query chooses, because a sum that is NaN is ignored.
    EXPECT_EQ(select_by_two(2, {odd, 0, 0, 0, 0, 0, 7, 1}), positions_of(2));
  }
}

TEST(ChannelSelect, TakesAQueryThatHasNothingInTheChannelsRead) {
  // The first query's share is 0: all candidates are alike to it, and the second one chooses.
  EXPECT_EQ(select_by_two(2, {1, 0, 0, 0, 0, 0, 9, -9}), positions_of(2));
  EXPECT_EQ(select_by_two(1, {0, 0, 0, 0}), first);
}

}  // namespace
}  // namespace terrace
