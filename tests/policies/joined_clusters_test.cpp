// Extensions so short that they use up a chunk's places for clusters, and what is cut off of them.
#include <gtest/gtest.h>

#include "policies/cluster_members.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::ClustersOf;
using testing::PolicyIndex;
using testing::wave_clusters;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr std::size_t sinks = 4;

TEST(JoinedClusters, StandForAllTheirMembers) {
  BlockStore rows(shape, 16, 800);
  rows.fill_normal(111);
  const auto policy = policies::make_retrieval_policy("wave").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(300);
  // Five tokens a batch: the 22 places of a chunk are taken long before its end.
  for (std::size_t end = 305; end <= 800; end += 5) {
    index.extend(end);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      ClustersOf(index, shape, wave_clusters).expect_means_of_members(rows, head, 1e-3);
    }
  }
}

TEST(JoinedClusters, ForgetWhoWasCutOff) {
  BlockStore rows(shape, 16, 800);
  rows.fill_normal(113);
  const auto policy = policies::make_retrieval_policy("wave").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(300);
  std::size_t changes = 0;
  for (std::size_t end = 305; end <= 520; end += 5) {
    index.extend(end);
    for (std::size_t next = end + 5; next <= end + 20; next += 5) index.extend(next);
    if (index.truncate(end)) ++changes;
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      ClustersOf(index, shape, wave_clusters).expect_means_of_members(rows, head, 1e-3);
    }
  }
  EXPECT_GT(changes, 0U);
}

}  // namespace
}  // namespace terrace
