#include <gmock/gmock.h>

#include <map>

#include "policies/cluster_members.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::ClustersOf;
using testing::PolicyIndex;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr ClusterShape clusters{.chunk_tokens = 256, .slots = 22, .estimates = true};
constexpr std::size_t sinks = 4;

ClustersOf clusters_of(const PolicyIndex& index) { return {index, shape, clusters}; }

std::vector<float> query_of(std::uint64_t stream) {
  Rng rng(testing::seed(), {stream});
  std::vector<float> query(shape.query_heads * shape.head_dim);
  for (float& x : query) x = testing::normal(rng);
  return query;
}

TEST(Wave, HasTheSlotsOfItsRule) {
  const auto policy = policies::make_retrieval_policy("wave").value();
  EXPECT_EQ(policy->index_layout(shape).value().chunk_bytes,
            shape.kv_heads * kernels::cluster_plane_bytes(shape, clusters));
}

TEST(Wave, KeepsEachClusterInItsSegmentAndBelowTheSplitLimit) {
  BlockStore rows(shape, 16, 1600);
  Rng rng(testing::seed(), {101});
  // Half of the keys are nearly equal: one cluster would swallow them.
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return p % 2 == 0 ? (i == 1 ? 5.0F : 0.0F) + 1e-3F * testing::normal(rng)
                      : testing::normal(rng);
  });
  const auto policy =
      policies::make_retrieval_policy("wave", {.wave = {.segment_tokens = 512}}).value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1300);
  index.extend(1500);
  index.extend(1600);
  std::size_t all = 0;
  for (const auto& [cluster, positions] : clusters_of(index).members(1)) {
    all += positions.size();
    EXPECT_LE(positions.size(), 64U);
    const auto part = [](std::size_t p) {
      return p >= 1500 ? 100 : p >= 1300 ? 50 : (p - sinks) / 512;
    };
    for (const std::size_t p : positions) EXPECT_EQ(part(p), part(positions.front()));
  }
  EXPECT_EQ(all, 1600 - sinks);
}

TEST(Wave, EachCandidateIsAttendedOrEstimatedOnce) {
  BlockStore rows(shape, 16, 1600);
  rows.fill_normal(102);
  const auto policy = policies::make_retrieval_policy("wave").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1400);
  index.extend(1600);
  for (const std::size_t window : {std::size_t{1333}, std::size_t{1450}}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{200}, std::size_t{1600}}) {
      const auto lists = index.select(query_of(103), window, count);
      for (std::size_t head = 0; head < lists.size(); ++head) {
        double estimated = 0;
        const std::size_t stride = policy->pseudo_capacity(index.indexed().size());
        for (std::size_t i = 0; i < index.pseudo_counts[head]; ++i) {
          // Equal queries make the part of the bias that is not log(size) the same everywhere.
          estimated += std::exp(double{index.pseudo_bias[head * stride + i]});
        }
        if (count == 1600) {
          EXPECT_EQ(lists[head].size(), window - sinks);
          EXPECT_EQ(index.pseudo_counts[head], 0U);
        }
        EXPECT_GE(estimated + 1e-3, static_cast<double>(window - sinks - lists[head].size()));
      }
    }
  }
}

TEST(Wave, CountsExactlyTheCandidatesWhenItEstimatesByCentroids) {
  BlockStore rows(shape, 16, 1600);
  rows.fill_normal(102);
  const auto policy = policies::make_retrieval_policy("wave", {.wave = {.spreads = false}}).value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1400);
  index.extend(1600);
  for (const std::size_t window : {std::size_t{1333}, std::size_t{1450}}) {
    const auto lists = index.select(query_of(103), window, 200);
    const std::size_t stride = policy->pseudo_capacity(index.indexed().size());
    for (std::size_t head = 0; head < lists.size(); ++head) {
      double estimated = 0;
      for (std::size_t i = 0; i < index.pseudo_counts[head]; ++i) {
        estimated += std::exp(double{index.pseudo_bias[head * stride + i]});
      }
      EXPECT_NEAR(estimated, static_cast<double>(window - sinks - lists[head].size()), 1e-2);
    }
  }
}

TEST(Wave, AssignsTheSameWayWhenAllKeysMoveByOneVector) {
  const auto policy = policies::make_retrieval_policy("wave").value();
  std::map<std::uint32_t, std::vector<std::size_t>> seen[2];
  for (const bool moved : {false, true}) {
    KvShape exact = shape;
    exact.dtype = Dtype::f32;
    BlockStore rows(exact, 16, 600);
    Rng rng(testing::seed(), {104});
    rows.fill([&](std::size_t, std::size_t, std::size_t i) {
      // Multiples of 1/64, so that moving them rounds nothing.
      const float x = std::round(testing::normal(rng) * 64) / 64;
      return moved ? x + static_cast<float>(i) : x;
    });
    PolicyIndex index(*policy, rows, sinks);
    index.build(600);
    seen[moved ? 1 : 0] = ClustersOf(index, exact, clusters).members(0);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(Wave, AttendsToMoreTheMoreMassIsWanted) {
  BlockStore rows(shape, 16, 1600);
  rows.fill_normal(105);
  const auto policy = policies::make_retrieval_policy("wave").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1600);
  std::size_t before = 0;
  for (const double wanted : {0.2, 0.5, 0.8, 0.95}) {
    index.mass_wanted = wanted;
    const auto lists = index.select(query_of(106), 1500, 1600);
    EXPECT_GT(lists[0].size(), before);
    before = lists[0].size();
    EXPECT_LE(index.mass[0].low, index.mass[0].high);
  }
  EXPECT_LT(before, 1500 - sinks);
}

TEST(Wave, RefusesSettingsThatDoNotFit) {
  using policies::make_retrieval_policy;
  EXPECT_FALSE(make_retrieval_policy("wave", {.wave = {.tokens_per_cluster = 0}}).has_value());
  EXPECT_FALSE(make_retrieval_policy("wave", {.wave = {.segment_tokens = 300}}).has_value());
  EXPECT_FALSE(make_retrieval_policy("wave", {.wave = {.estimated_share = 2}}).has_value());
}

TEST(Quest, BoundsEveryScoreOfAPageAndGrowsAsBuiltAtOnce) {
  BlockStore rows(shape, 16, 700);
  rows.fill_normal(107);
  const auto policy = policies::make_retrieval_policy("quest").value();
  PolicyIndex grown(*policy, rows, sinks);
  grown.build(300);
  for (std::size_t end = 301; end <= 700; ++end) grown.extend(end);
  PolicyIndex at_once(*policy, rows, sinks);
  at_once.build(700);
  const auto query = query_of(108);
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
