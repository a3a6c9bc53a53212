// A second stage behind policies: whatever it is put behind, it finds more of what exact scores
// would choose. Promises of every policy are kept with it, too: TERRACE_TEST_REFINE.
#include <gmock/gmock.h>

#include <algorithm>

#include "policies/policy_index.hpp"
#include "policies/recall.hpp"
#include "policies/selecting_policies.hpp"

namespace terrace {
namespace {

using policies::RetrievalOptions;
using testing::BlockStore;
using ::testing::HasSubstr;
using testing::PolicyIndex;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 64};
constexpr std::size_t tokens = 1200;
constexpr std::size_t sinks = 4;

std::unique_ptr<RetrievalPolicy> make(const std::string& name, std::size_t bits,
                                      std::size_t factor = 4) {
  return policies::make_retrieval_policy(name, {.refine = {.bits = bits, .factor = factor}})
      .value();
}
/// Keys that clusters, pages and codes can tell apart, and no better: groups, and noise.
void fill_with_groups(BlockStore& rows) {
  Rng rng(testing::seed(), {71});
  std::vector<std::vector<float>> groups(40, std::vector<float>(shape.head_dim));
  for (auto& group : groups) {
    for (float& x : group) x = 2 * testing::normal(rng);
  }
  std::vector<std::size_t> of(rows.tokens());
  for (std::size_t& group : of) group = rng.below(groups.size());
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return groups[of[p]][i % shape.head_dim] + testing::normal(rng);
  });
}

/// Recall of the best 60 of a policy's index, in the mean over some queries.
double recall_of(const std::string& name, std::size_t bits, std::size_t factor) {
  KvShape alone = shape;
  alone.query_heads = alone.kv_heads;  // so that recall is that of a head's own scores
  BlockStore rows(alone, 16, tokens);
  fill_with_groups(rows);
  const auto policy = make(name, bits, factor);
  PolicyIndex index(*policy, rows, sinks);
  index.query_window = testing::normal_query({.layers = 1,
                                              .query_heads = 64 * alone.query_heads,
                                              .kv_heads = alone.kv_heads,
                                              .head_dim = alone.head_dim},
                                             72);
  index.build(1000);
  for (std::size_t end = 1000; end < tokens;) {
    end = std::min(end + std::max<std::size_t>(1, policy->traits().batch_tokens_min), tokens);
    index.extend(end);
  }
  std::vector<float> queries;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::vector<float> query = testing::normal_query(alone, 80 + i);
    queries.insert(queries.end(), query.begin(), query.end());
  }
  return testing::recall(index, rows, queries, {sinks, tokens - 100}, 60);
}

class Refined : public ::testing::TestWithParam<std::string> {};

TEST_P(Refined, FindsMoreWithMoreBitsAndMoreProposals) {
  const double coarse = recall_of(GetParam(), 0, 4);
  const double one_bit = recall_of(GetParam(), 1, 4);
  const double two_bits = recall_of(GetParam(), 2, 4);
  const bool coded = GetParam() == "pqcache" || GetParam() == "qpq";
  EXPECT_GT(one_bit, coded ? coarse : coarse - 0.02);
  EXPECT_GT(two_bits, std::max(one_bit, coarse));
  // Codes of whole keys, where nearly all are proposed; those of product quantisation's rests do
  // better.
  EXPECT_GT(recall_of(GetParam(), 2, 16), coded ? 0.85 : 0.65);
}

INSTANTIATE_TEST_SUITE_P(Policies, Refined,
                         ::testing::Values("pqcache", "qpq", "clusterkv", "wave", "quest",
                                           "infllm"),
                         [](const auto& name) { return name.param; });

TEST(RefinedIndex, TakesTwoBitsAChannelAndAFactor) {
  const IndexLayout coarse = make("pqcache", 0)->index_layout(shape).value();
  const IndexLayout fine = make("pqcache", 2)->index_layout(shape).value();
  const std::size_t rows = fine.chunk_tokens * shape.kv_heads;
  EXPECT_EQ(fine.chunk_bytes - coarse.chunk_bytes, rows * (shape.head_dim / 4 + 2));
  EXPECT_EQ(fine.fixed_bytes, coarse.fixed_bytes);
  EXPECT_LE(fine.chunk_bytes, 0.09 * static_cast<double>(rows * shape.row_bytes()));
}

TEST(RefinedIndex, AFactorThatProposesAllGivesTheBestOfAllCodes) {
  BlockStore rows(shape, 16, tokens);
  fill_with_groups(rows);
  const std::vector<float> query = testing::normal_query(shape, 90);
  std::vector<PolicyIndex::Lists> found;
  for (const std::size_t factor : {32UL, 64UL}) {
    const auto policy = make("pqcache", 2, factor);
    PolicyIndex index(*policy, rows, sinks);
    index.build(tokens);
    found.push_back(index.select(query, tokens - 50, 40));
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST(MakeRefined, RefusesWhatCannotBeRefined) {
  const auto message = [](const std::string& name, const RetrievalOptions& options) {
    const auto made = policies::make_retrieval_policy(name, options);
    return made.has_value() ? std::string() : std::string(made.error().message());
  };
  EXPECT_THAT(message("pqcache", {.refine = {.bits = 3}}), HasSubstr("use off, 1 or 2"));
  EXPECT_THAT(message("pqcache", {.refine = {.bits = 1, .factor = 0}}), HasSubstr("use 1 to 64"));
  EXPECT_THAT(
      message("clusterkv", {.refine = {.bits = 1}, .clusterkv = {.lists = ListScope::query_head}}),
      HasSubstr("clusterkv.lists kv_head"));
}

TEST(MakeRefined, LeavesPoliciesAloneThatScoreExactlyOrSelectNothing) {
  for (const char* const name : {"full", "streaming", "oracle"}) {
    EXPECT_EQ(make(name, 2)->index_layout(shape).value().chunk_bytes,
              make(name, 0)->index_layout(shape).value().chunk_bytes);
  }
}

}  // namespace
}  // namespace terrace
