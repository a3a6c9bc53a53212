#include <gmock/gmock.h>

#include "policies/cluster_members.hpp"
#include "policies/recall.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::ClustersOf;
using testing::PolicyIndex;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr ClusterShape clusters{.chunk_tokens = 320, .slots = 6};
constexpr std::size_t sinks = 4;

ClustersOf clusters_of(const PolicyIndex& index) { return {index, shape, clusters}; }

TEST(ClusterKv, MakesACentroidTheMeanOfItsMembersAndCountsThem) {
  BlockStore rows(shape, 16, 1700);
  rows.fill_normal(71);
  const auto policy = policies::make_retrieval_policy("clusterkv").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1000);
  index.extend(1320);
  index.extend(1700);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    const auto all = clusters_of(index).members(head);
    // 996 / 80 clusters of the prompt, 4 of a whole batch, 4 of 380 tokens
    EXPECT_EQ(all.size(), 12U + 4 + 4);
    // f16 below 2: half an ulp is 5e-4
    clusters_of(index).expect_means_of_members(rows, head, 1e-3);
  }
}

TEST(ClusterKv, ExtendingLeavesOldClustersAndLabelsAsTheyAre) {
  BlockStore rows(shape, 16, 1700);
  rows.fill_normal(71);
  const auto policy = policies::make_retrieval_policy("clusterkv").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1000);
  const auto before = clusters_of(index).members(1);
  index.extend(1100);
  auto after = clusters_of(index).members(1);
  for (const auto& [cluster, positions] : before) EXPECT_EQ(after[cluster], positions);
}

TEST(ClusterKv, RecoversPlantedDirectionsAndIgnoresTheLengthOfKeys) {
  // 5 directions, each key along one of them at any length.
  BlockStore rows(shape, 16, 404);
  Rng rng(testing::seed(), {72});
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    const double length = 0.5 + static_cast<double>(p % 7);
    return static_cast<float>(length * ((i % 5 == p % 5 ? 1 : 0) + 0.01 * rng.uniform()));
  });
  const auto policy = policies::make_retrieval_policy("clusterkv").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(404);
  for (const auto& [cluster, positions] : clusters_of(index).members(0)) {
    for (const std::size_t p : positions) EXPECT_EQ(p % 5, positions.front() % 5);
  }
}

TEST(ClusterKv, FindsMoreTheMoreClustersThereAre) {
  BlockStore rows(shape, 16, 1000);
  rows.fill_normal(74);
  Rng rng(testing::seed(), {75});
  std::vector<float> queries(20 * shape.query_heads * shape.head_dim);
  for (float& x : queries) x = testing::normal(rng);
  double before = 0;
  for (const std::size_t tokens : {320U, 80U, 20U, 5U}) {
    const auto policy =
        policies::make_retrieval_policy(
            "clusterkv",
            {.clusterkv = {.tokens_per_cluster = tokens, .lists = ListScope::query_head}})
            .value();
    PolicyIndex index(*policy, rows, sinks);
    index.build(1000);
    const double found = testing::recall(index, rows, queries, {sinks, 1000}, 100);
    EXPECT_GT(found, before + 0.05) << tokens << " tokens a cluster, " << testing::seed_text();
    before = found;
  }
}

TEST(ClusterKv, GoesOnWhenManyShortExtensionsFillAChunk) {
  BlockStore rows(shape, 16, 700);
  rows.fill_normal(73);
  const auto policy = policies::make_retrieval_policy("clusterkv").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(100);
  for (std::size_t end = 110; end <= 700; end += 10) index.extend(end);
  const auto lists = index.select(std::vector<float>(64, 1.0F), 690, 686);
  EXPECT_EQ(lists[0].size(), 686U);
  for (const std::size_t head : {0U, 1U}) {
    clusters_of(index).expect_means_of_members(rows, head, 1e-3);
  }
}

TEST(ClusterKv, RefusesClusterSizesThatNoChunkCanHold) {
  for (const std::size_t tokens : {std::size_t{0}, std::size_t{321}}) {
    const auto made =
        policies::make_retrieval_policy("clusterkv", {.clusterkv = {.tokens_per_cluster = tokens}});
    ASSERT_FALSE(made.has_value());
    EXPECT_THAT(std::string(made.error().message()),
                ::testing::HasSubstr("clusterkv.tokens_per_cluster"));
  }
}

}  // namespace
}  // namespace terrace
