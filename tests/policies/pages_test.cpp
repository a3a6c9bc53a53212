// What is special to policies that select pages: quest and infllm.
#include <gtest/gtest.h>

#include <algorithm>
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
  Rng rng(testing::seed(), {108});
  std::vector<float> query(shape.query_heads * shape.head_dim);
  for (float& x : query) x = testing::normal(rng);
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

TEST(Pages, RefuseSizesThatDoNotFillAChunk) {
  using policies::make_retrieval_policy;
  EXPECT_FALSE(make_retrieval_policy("quest", {.quest = {.page_tokens = 24}}).has_value());
  EXPECT_FALSE(make_retrieval_policy("infllm", {.infllm = {.block_tokens = 0}}).has_value());
  EXPECT_FALSE(make_retrieval_policy("infllm", {.infllm = {.representatives = 0}}).has_value());
}

}  // namespace
}  // namespace terrace
