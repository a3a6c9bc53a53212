// Extensions so short that they use up a chunk's places for clusters, and what is cut off of them.
#include <gtest/gtest.h>

#include <algorithm>

#include "policies/cluster_members.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::ClustersOf;
using testing::PolicyIndex;
using testing::wave_clusters;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr std::size_t sinks = 4;

/// Checks that the bounds of a selection hold the mass that its attention has.
void expect_bounds_hold(PolicyIndex& index, const BlockStore& rows, std::uint64_t stream) {
  const std::vector<float> query = testing::normal_query(shape, stream);
  const std::size_t window = index.indexed().end - 60;
  const auto lists = index.select(query, window, 100);
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    const std::size_t head = q / shape.group();
    double all = 0;
    double attended = 0;
    for (std::uint32_t p = 0; p < rows.tokens(); ++p) {
      double dot = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        dot += double{query[q * shape.head_dim + i]} * double{rows.key(head, p, i)};
      }
      const double weight = std::exp(0.25 * dot);  // 1 / sqrt(head_dim)
      all += weight;
      const bool exact = p < sinks || p >= window || std::ranges::binary_search(lists[head], p);
      attended += exact ? weight : 0;
    }
    EXPECT_LE(double{index.mass[q].low}, attended / all + 1e-5) << testing::seed_text();
    EXPECT_GE(double{index.mass[q].high}, attended / all - 1e-5) << testing::seed_text();
  }
}

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
  expect_bounds_hold(index, rows, 112);
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
  expect_bounds_hold(index, rows, 114);
}

}  // namespace
}  // namespace terrace
