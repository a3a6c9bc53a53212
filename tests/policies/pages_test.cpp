// The special parts of policies that select pages: quest and infllm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "policies/policy_index.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::PolicyIndex;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr std::size_t sinks = 4;

TEST(Quest, BoundsEveryScoreOfAPageAndGrowsAsBuiltAtOnce) {
  BlockStore rows(shape, 16, 700);
  rows.fill_normal(107);
  const auto policy = policies::make_retrieval_policy("quest").value();
  PolicyIndex grown(*policy, rows, sinks);
  grown.build(300);
  for (std::size_t end = 301; end <= 700; ++end) grown.extend(end);
  PolicyIndex at_once(*policy, rows, sinks);
  at_once.build(700);
  const std::vector<float> query = testing::normal_query(shape, 108);
  for (std::size_t page = 0; page < 43; ++page) {
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const std::size_t at = (head * 16 + page % 16) * 2 * shape.head_dim;
      const auto bound = [&](const PolicyIndex& index, std::size_t i) {
        return load_f32(index.chunks()[page / 16].data(), shape.dtype, at + i);
      };
      double score = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        EXPECT_EQ(bound(grown, i), bound(at_once, i));
        const double q = double{query[head * 2 * shape.head_dim + i]};
        score +=
            std::max(q * double{bound(grown, i)}, q * double{bound(grown, shape.head_dim + i)});
      }
      for (std::size_t t = 0; t < 16 && page * 16 + t + sinks < 700; ++t) {
        double dot = 0;
        for (std::size_t i = 0; i < shape.head_dim; ++i) {
          dot += double{query[head * 2 * shape.head_dim + i]} *
                 double{rows.key(head, sinks + page * 16 + t, i)};
        }
        EXPECT_LE(dot, score + 1e-9);
      }
    }
  }
}

TEST(Quest, WithPagesOfOneTokenSelectsWhatTheOracleSelects) {
  // A query head for each KV head, so that the order is that of the scores themselves.
  constexpr KvShape single{.layers = 1, .query_heads = 2, .kv_heads = 2, .head_dim = 16};
  BlockStore rows(single, 16, 700);
  rows.fill_normal(109);
  const auto quest =
      policies::make_retrieval_policy("quest", {.quest = {.page_tokens = 1}}).value();
  const auto oracle = policies::make_retrieval_policy("oracle").value();
  PolicyIndex pages(*quest, rows, sinks);
  PolicyIndex exact(*oracle, rows, sinks);
  pages.build(700);
  exact.build(700);
  const std::vector<float> query = testing::normal_query(single, 110);
  for (const std::size_t count : {1U, 37U, 300U}) {
    EXPECT_EQ(pages.select(query, 660, count), exact.select(query, 660, count))
        << testing::seed_text();
  }
}

/// The vector that stands for a block of 128 tokens.
std::vector<float> block_vector(const PolicyIndex& index, std::size_t head, std::size_t block) {
  std::vector<float> vector(shape.head_dim);
  for (std::size_t i = 0; i < shape.head_dim; ++i) {
    vector[i] = load_f32(index.chunks()[block / 2].data(), shape.dtype,
                         (head * 2 + block % 2) * shape.head_dim + i);
  }
  return vector;
}

/// Checks that the mean of the keys at `positions` stands for a block.
void expect_representatives(const PolicyIndex& index, const BlockStore& rows, std::size_t block,
                            const std::vector<std::size_t>& positions) {
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    const std::vector<float> vector = block_vector(index, head, block);
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      double mean = 0;
      for (const std::size_t p : positions) mean += double{rows.key(head, p, i)};
      mean /= static_cast<double>(positions.size());
      // f16: half an ulp below 16 is 4e-3.
      EXPECT_NEAR(double{vector[i]}, mean, 4e-3) << "block " << block << ", head " << head;
    }
  }
}

TEST(InfLlm, LetsTheKeysStandForABlockThatThePromptsEndLookedAtMost) {
  constexpr std::size_t tokens = sinks + 2 * 128 + 3;
  // In each block these, the strongest last, and a key that points the other way.
  constexpr std::size_t significant[] = {17, 40, 41, 90, 127};
  BlockStore rows(shape, 16, tokens);
  Rng rng(testing::seed(), {143});
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    float key = testing::normal(rng) / 8;
    if (p < sinks || i != 5) return key;
    const std::size_t at = (p - sinks) % 128;
    for (std::size_t rank = 0; rank < std::size(significant); ++rank) {
      if (at == significant[rank]) key += 4 + static_cast<float>(rank);
    }
    return at == 60 ? -9.0F : key;
  });
  const auto policy = policies::make_retrieval_policy("infllm").value();
  PolicyIndex index(*policy, rows, sinks);
  // Queries that look along one element in the mean, though each looks elsewhere, too.
  index.query_window.resize(10 * shape.query_heads * shape.head_dim);
  for (std::size_t i = 0; i < index.query_window.size(); ++i) {
    index.query_window[i] = testing::normal(rng) / 8 + (i % shape.head_dim == 5 ? 1.0F : 0.0F);
  }
  index.build(tokens);
  for (const std::size_t block : {0UL, 1UL}) {
    std::vector<std::size_t> best;
    for (std::size_t rank = 1; rank < std::size(significant); ++rank) {
      best.push_back(sinks + block * 128 + significant[rank]);
    }
    expect_representatives(index, rows, block, best);
  }
  // A block of three tokens has all of them as representatives.
  expect_representatives(index, rows, 2, {tokens - 3, tokens - 2, tokens - 1});
}

TEST(InfLlm, LeavesOutQueriesAndKeysThatAreNoNumbers) {
  BlockStore rows(shape, 16, sinks + 128);
  rows.fill([](std::size_t p, std::size_t, std::size_t i) {
    return i == 5 && p >= sinks + 100 && p < sinks + 104 ? 4.0F : 0.125F;
  });
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    store_f32(rows.row(head, sinks + 101), shape.dtype, 5, HUGE_VALF);
  }
  const auto policy = policies::make_retrieval_policy("infllm").value();
  PolicyIndex index(*policy, rows, sinks);
  for (std::size_t position = 0; position < 10; ++position) {
    for (std::size_t i = 0; i < shape.query_heads * shape.head_dim; ++i) {
      index.query_window.push_back(i % shape.head_dim == 5 ? 1.0F : 0.5F);
    }
  }
  // One query head of a position in each group: the other heads of the group still have a query.
  index.query_window[3] = std::nanf("");
  index.query_window[shape.query_heads * shape.head_dim - 1] = -HUGE_VALF;
  index.build(sinks + 128);
  expect_representatives(index, rows, 0, {sinks, sinks + 100, sinks + 102, sinks + 103});
}

TEST(InfLlm, TakesTheLowestPositionsWhereNothingIsKnownOfQueriesAndNoKeyThatIsNoNumber) {
  BlockStore rows(shape, 16, sinks + 128);
  rows.fill_normal(144);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    store_f32(rows.row(head, sinks + 1), shape.dtype, 7, std::nanf(""));
  }
  const auto policy = policies::make_retrieval_policy("infllm").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(sinks + 128);
  expect_representatives(index, rows, 0, {sinks, sinks + 2, sinks + 3, sinks + 4});
  const auto one =
      policies::make_retrieval_policy("infllm", {.infllm = {.representatives = 1}}).value();
  PolicyIndex of_one(*one, rows, sinks);
  of_one.build(sinks + 128);
  expect_representatives(of_one, rows, 0, {sinks});
}

TEST(Pages, RefuseSizesThatDoNotFillAChunk) {
  using policies::make_retrieval_policy;
  EXPECT_FALSE(make_retrieval_policy("quest", {.quest = {.page_tokens = 24}}).has_value());
  EXPECT_FALSE(make_retrieval_policy("infllm", {.infllm = {.block_tokens = 0}}).has_value());
  EXPECT_FALSE(make_retrieval_policy("infllm", {.infllm = {.representatives = 0}}).has_value());
}

}  // namespace
}  // namespace terrace
