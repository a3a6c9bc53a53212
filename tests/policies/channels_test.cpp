// The special parts of policies that score some channels of keys: sparq.
#include <gmock/gmock.h>

#include <cmath>

#include "policies/policy_index.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using ::testing::HasSubstr;
using testing::PolicyIndex;

constexpr KvShape shape{.layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = 16};
constexpr std::size_t sinks = 4;

/// Small whole numbers: with a head_dim whose root is a power of two f32 is exact.
void fill_with_whole_numbers(BlockStore& rows) {
  Rng rng(testing::seed(), {151});
  rows.fill(
      [&](std::size_t, std::size_t, std::size_t) { return static_cast<float>(rng.below(9)) - 4; });
}

std::vector<float> whole_query(std::uint64_t stream) {
  std::vector<float> query = testing::normal_query(shape, stream);
  for (float& x : query) x = std::round(x);
  return query;
}

std::unique_ptr<RetrievalPolicy> make_sparq(std::size_t channels) {
  return policies::make_retrieval_policy("sparq", {.sparq = {.channels = channels}}).value();
}

TEST(Sparq, WithAllChannelsSelectsWhatTheOracleSelects) {
  BlockStore rows(shape, 16, 700);
  fill_with_whole_numbers(rows);
  const auto sparq = make_sparq(shape.head_dim);
  const auto oracle = policies::make_retrieval_policy("oracle").value();
  PolicyIndex channels(*sparq, rows, sinks);
  PolicyIndex exact(*oracle, rows, sinks);
  channels.build(700);
  exact.build(700);
  for (const std::size_t count : {1U, 37U, 300U}) {
    const std::vector<float> query = whole_query(152 + count);
    EXPECT_EQ(channels.select(query, 660, count), exact.select(query, 660, count))
        << testing::seed_text();
  }
}

TEST(Sparq, SelectsWhatTheOracleSelectsForQueriesWithoutOtherChannels) {
  BlockStore rows(shape, 16, 700);
  fill_with_whole_numbers(rows);
  const auto sparq = make_sparq(5);
  const auto oracle = policies::make_retrieval_policy("oracle").value();
  PolicyIndex channels(*sparq, rows, sinks);
  PolicyIndex exact(*oracle, rows, sinks);
  channels.build(700);
  exact.build(700);
  std::vector<float> query = whole_query(153);
  for (std::size_t i = 0; i < query.size(); ++i) {
    if (i % shape.head_dim % 3 != 1) query[i] = 0;  // 5 are left
  }
  EXPECT_EQ(channels.select(query, 660, 50), exact.select(query, 660, 50)) << testing::seed_text();
}

TEST(Sparq, GrowsAsBuiltAtOnce) {
  BlockStore rows(shape, 16, 700);
  rows.fill_normal(154);
  const auto policy = make_sparq(0);
  PolicyIndex grown(*policy, rows, sinks);
  grown.build(300);
  for (std::size_t end = 301; end <= 700; ++end) grown.extend(end);
  PolicyIndex at_once(*policy, rows, sinks);
  at_once.build(700);
  EXPECT_EQ(grown.chunks(), at_once.chunks());
}

TEST(Sparq, RefusesMoreChannelsThanKeysHave) {
  EXPECT_TRUE(make_sparq(16)->index_layout(shape).has_value());
  const auto refused = make_sparq(17)->index_layout(shape);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("sparq.channels 17"));
}

}  // namespace
}  // namespace terrace
