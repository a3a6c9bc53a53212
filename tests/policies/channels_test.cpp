// The special parts of policies that score some channels of keys: sparq and infinigen.
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

/// Small whole numbers: if the root of head_dim is a power of two, f32 is exact.
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

std::unique_ptr<RetrievalPolicy> make_infinigen(double ratio) {
  return policies::make_retrieval_policy("infinigen", {.infinigen = {.ratio = ratio}}).value();
}

TEST(InfiniGen, WithAllChannelsSelectsWhatTheOracleSelectsForTheSpeculatedQuery) {
  BlockStore rows(shape, 16, 700);
  fill_with_whole_numbers(rows);
  const auto infinigen = make_infinigen(1);
  const auto oracle = policies::make_retrieval_policy("oracle").value();
  PolicyIndex guessed(*infinigen, rows, sinks);
  PolicyIndex exact(*oracle, rows, sinks);
  guessed.build(700);
  exact.build(700);
  const std::vector<float> query = whole_query(160);
  guessed.speculated = whole_query(161);
  for (const std::size_t count : {1U, 37U, 300U}) {
    EXPECT_EQ(guessed.select(query, 660, count), exact.select(guessed.speculated, 660, count))
        << testing::seed_text();
  }
}

/// The channels of a KV head that an index of 4 has.
std::vector<std::uint32_t> channels_of(const PolicyIndex& index, std::size_t head) {
  const auto* const all = reinterpret_cast<const std::uint32_t*>(index.view().fixed);
  return {all + head * 4, all + (head + 1) * 4};
}

TEST(InfiniGen, KeepsTheChannelsThatKeysAndThePromptsLastQueriesAreLargestIn) {
  BlockStore rows(shape, 16, 400);
  Rng rng(testing::seed(), {162});
  // Keys are large in channels 3 and 9, of the second head in 4 and 9; signs do not count.
  rows.fill([&](std::size_t p, std::size_t head, std::size_t i) {
    const float noise = testing::normal(rng) / 8;
    if (p == 100 && i == 0) return std::nanf("");
    if (i == 9 || i == 3 + head) return p % 2 == 0 ? 4 + noise : -4 + noise;
    return noise;
  });
  const auto policy = make_infinigen(0.25);
  PolicyIndex index(*policy, rows, sinks);
  index.query_window.assign(2 * shape.query_heads * shape.head_dim, 0.01F);
  // The queries of each head's group are large in channels 12 and 1 beside.
  for (std::size_t q = 0; q < 2 * shape.query_heads; ++q) {
    index.query_window[q * shape.head_dim + 12] = q % 2 == 0 ? 3.0F : -3.0F;
    index.query_window[q * shape.head_dim + 1] = 2;
  }
  index.build(300);
  EXPECT_THAT(channels_of(index, 0), ::testing::ElementsAre(1, 3, 9, 12));
  EXPECT_THAT(channels_of(index, 1), ::testing::ElementsAre(1, 4, 9, 12));
  index.extend(400);
  EXPECT_THAT(channels_of(index, 0), ::testing::ElementsAre(1, 3, 9, 12));
  for (std::size_t token = 0; token < 396; ++token) {
    for (std::size_t c = 0; c < 4; ++c) {
      const std::size_t place = (4 + c) * 64 + token % 64;
      EXPECT_EQ(load_f32(index.chunks()[token / 64].data(), shape.dtype, place),
                rows.key(1, sinks + token, channels_of(index, 1)[c]));
    }
  }
}

TEST(InfiniGen, MadeAnewWithoutQueriesKeepsItsChannels) {
  BlockStore rows(shape, 16, 400);
  rows.fill_normal(163);
  const auto policy = make_infinigen(0.25);
  PolicyIndex index(*policy, rows, sinks);
  index.query_window.assign(shape.query_heads * shape.head_dim, 0.01F);
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    for (const std::size_t i : {2U, 5U, 6U, 15U}) index.query_window[q * shape.head_dim + i] = 9;
  }
  index.build(400);
  ASSERT_THAT(channels_of(index, 0), ::testing::ElementsAre(2, 5, 6, 15));
  BuildRequest anew = index.request({sinks, 400});
  anew.hints = {};
  anew.anew = true;
  Serial alone;
  ASSERT_TRUE(policy->build(anew, alone).has_value());
  EXPECT_THAT(channels_of(index, 0), ::testing::ElementsAre(2, 5, 6, 15));
}

TEST(InfiniGen, RefusesNoChannelsAndMoreThanThereAre) {
  for (const double ratio : {0.0, -0.5, 1.01, std::nan("")}) {
    const auto refused =
        policies::make_retrieval_policy("infinigen", {.infinigen = {.ratio = ratio}});
    ASSERT_FALSE(refused.has_value()) << ratio;
    EXPECT_THAT(std::string(refused.error().message()), HasSubstr("infinigen.ratio"));
  }
  // At least one channel.
  EXPECT_EQ(make_infinigen(0.001)->index_layout(shape).value().fixed_bytes,
            shape.kv_heads * sizeof(std::uint32_t));
}

}  // namespace
}  // namespace terrace
