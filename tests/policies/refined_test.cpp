// A second stage after policies: after any of them, it finds more of the rows that exact scores
// would choose. All policies keep their promises with it, too: TERRACE_TEST_REFINE.
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

/// Returns where codes begin in a chunk.
std::size_t codes_begin(const std::string& name, const KvShape& of) {
  return align_up(make(name, 0)->index_layout(of).value().chunk_bytes, 4);
}

/// Returns the policies that can have a second stage.
std::vector<std::string> refinable_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) {
    const auto alone = make(std::string(entry.name), 0)->index_layout(shape).value();
    const auto refined = make(std::string(entry.name), 2)->index_layout(shape).value();
    if (refined.chunk_bytes > alone.chunk_bytes) names.emplace_back(entry.name);
  }
  return names;
}

class Refined : public ::testing::TestWithParam<std::string> {};

TEST_P(Refined, FindsMoreWithMoreBitsAndMoreProposals) {
  const double coarse = recall_of(GetParam(), 0, 4);
  // signs itself has one bit already, and one bit is less than a quarter of all channels.
  const bool has_more = GetParam() == "signs" || GetParam() == "sparq";
  const double one_bit = has_more ? coarse : recall_of(GetParam(), 1, 4);
  const double two_bits = recall_of(GetParam(), 2, 4);
  const bool coded = GetParam() == "pqcache" || GetParam() == "qpq";
  EXPECT_GE(one_bit, coded ? coarse : coarse - 0.02);
  EXPECT_GT(two_bits, std::max(one_bit, coarse));
  // Codes of whole keys, where nearly all are proposed; those of product quantisation's rests do
  // better.
  EXPECT_GT(recall_of(GetParam(), 2, 16), coded ? 0.85 : 0.65);
}

/// Returns the codes of an index that is built with the tokens before `first`; the others come
/// `step` at a time.
std::vector<std::vector<std::byte>> codes_of(const std::string& name, std::size_t bits,
                                             std::size_t first, std::size_t step) {
  BlockStore rows(shape, 16, tokens);
  rows.fill_normal(73);
  const auto policy = make(name, bits);
  PolicyIndex index(*policy, rows, sinks);
  index.query_window.assign(64 * shape.query_heads * shape.head_dim, 1.0F);
  index.build(first);
  for (std::size_t end = first; end < tokens;) {
    end = std::min(end + std::max(step, policy->traits().batch_tokens_min), tokens);
    index.extend(end);
  }
  std::vector<std::vector<std::byte>> codes;
  const auto begin = static_cast<std::ptrdiff_t>(codes_begin(name, shape));
  for (const auto& chunk : index.chunks()) codes.emplace_back(chunk.begin() + begin, chunk.end());
  return codes;
}

TEST_P(Refined, CodesTokensAlikeHoweverTheyCome) {
  constexpr std::size_t some = 900;
  // Codebooks depend on what a build was given, and their rests do, all others on keys alone.
  const bool trained = GetParam() == "pqcache" || GetParam() == "qpq";
  for (const std::size_t bits : {1U, 2U}) {
    if (bits == 1 && GetParam() == "signs") continue;  // refused
    const auto at_once = codes_of(GetParam(), bits, trained ? some : tokens, tokens);
    EXPECT_TRUE(codes_of(GetParam(), bits, some, 1) == at_once) << bits;
    EXPECT_TRUE(codes_of(GetParam(), bits, some, 77) == at_once) << bits;
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, Refined, ::testing::ValuesIn(refinable_policies()),
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
  KvShape alone = shape;
  alone.query_heads = alone.kv_heads;  // so that weights are scores
  BlockStore rows(alone, 16, tokens);
  fill_with_groups(rows);
  const std::vector<float> query = testing::normal_query(alone, 90);
  const TokenRange candidates{sinks, tokens - 50};
  constexpr std::size_t count = 40;
  const auto policy = make("pqcache", 2, 32);
  ASSERT_GE(32 * count, candidates.size());
  PolicyIndex index(*policy, rows, sinks);
  index.build(tokens);
  const RefineSelect all{
      .common = {.shape = alone, .query = query.data()},
      .codes = {.bits = 2, .pq = PqShape{}, .chunk_begin = codes_begin("pqcache", alone)},
      .index = index.view()};
  const PolicyIndex::Lists lists = index.select(query, candidates.end, count);
  for (std::size_t head = 0; head < lists.size(); ++head) {
    std::vector<double> scores;
    for (std::size_t p = candidates.begin; p < candidates.end; ++p) {
      scores.push_back(kernels::reference::refine_score(all, head, p));
    }
    const std::vector<double> of_position = scores;
    std::ranges::sort(scores, std::greater<>());
    ASSERT_EQ(lists[head].size(), count);
    for (const std::uint32_t id : lists[head]) {
      EXPECT_GE(of_position[id - candidates.begin], scores[count - 1] - 1e-4);
    }
  }
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
  EXPECT_THAT(message("signs", {.refine = {.bits = 1}}), HasSubstr("use 2, or off"));
}

TEST(MakeRefined, RefusesAllChannelsOfSparq) {
  const auto layout = [](std::size_t channels) {
    const RetrievalOptions options{.refine = {.bits = 2}, .sparq = {.channels = channels}};
    return policies::make_retrieval_policy("sparq", options).value()->index_layout(shape);
  };
  EXPECT_TRUE(layout(63).has_value());
  EXPECT_THAT(std::string(layout(64).error().message()), HasSubstr("sparq.channels 64"));
}

TEST(MakeRefined, LeavesPoliciesAloneThatScoreExactlyOrSelectNothing) {
  for (const char* const name : {"full", "streaming", "oracle"}) {
    EXPECT_EQ(make(name, 2)->index_layout(shape).value().chunk_bytes,
              make(name, 0)->index_layout(shape).value().chunk_bytes);
  }
}

}  // namespace
}  // namespace terrace
