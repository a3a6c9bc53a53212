#include <gmock/gmock.h>

#include <map>

#include "policies/cluster_members.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::ClustersOf;
using testing::PolicyIndex;
using testing::wave_clusters;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr std::size_t sinks = 4;

ClustersOf clusters_of(const PolicyIndex& index) { return {index, shape, wave_clusters}; }

std::vector<float> query_of(std::uint64_t stream) { return testing::normal_query(shape, stream); }

/// Attention over sinks, window, selected rows and estimates of the last selection of `index`.
class Attended {
 public:
  Attended(const PolicyIndex& index, const RetrievalPolicy& policy, BlockStore& rows,
           const std::vector<float>& query, TokenRange window,
           const std::vector<std::vector<std::uint32_t>>& lists)
      : output(query.size()) {
    const KvShape& kv = rows.shape();
    const std::size_t stride = rows.tokens();
    std::vector<std::byte*> selected(kv.kv_heads * stride);
    std::vector<std::uint32_t> counts(kv.kv_heads);
    for (std::size_t head = 0; head < lists.size(); ++head) {
      for (const std::uint32_t p : lists[head]) {
        selected[head * stride + counts[head]++] = rows.row(head, p);
      }
    }
    kernels::reference::decode_attention(
        {.shape = kv,
         .query = query.data(),
         .output = output.data(),
         .resident = rows.table(),
         .sinks = {0, window.begin == 0 ? 0 : sinks},
         .window = window,
         .selected = selected.data(),
         .selected_count = counts.data(),
         .selected_stride = stride,
         .pseudo = {.rows = index.pseudo_rows.data(),
                    .bias = index.pseudo_bias.data(),
                    .count = lists.empty() ? nullptr : index.pseudo_counts.data(),
                    .stride = policy.pseudo_capacity(index.indexed().size())},
         .scale = scale});
  }

  [[nodiscard]] double error(const Attended& exact) const {
    double sum = 0;
    for (std::size_t i = 0; i < output.size(); ++i) {
      sum += std::pow(double{output[i]} - double{exact.output[i]}, 2);
    }
    return std::sqrt(sum);
  }

  static constexpr float scale = 0.25F;  // 1 / sqrt(head_dim)
  std::vector<float> output;
};

/// A policy of the given options with an index over all rows but the last 60, in f32: what is not
/// exact then is the estimate's doing.
class Estimates {
 public:
  Estimates(BlockStore& rows, const policies::WaveOptions& options)
      : rows_(rows),
        policy_(policies::make_retrieval_policy("wave", {.wave = options}).value()),
        index(*policy_, rows, sinks) {
    index.build(rows.tokens() - 60);
  }

  /// Attends to `count` selected tokens and estimates of others.
  Attended attend(const std::vector<float>& query, std::size_t count) {
    lists = index.select(query, rows_.tokens() - 60, count);
    return {index, *policy_, rows_, query, {rows_.tokens() - 60, rows_.tokens()}, lists};
  }
  Attended attend_to_all(const std::vector<float>& query) {
    return {index, *policy_, rows_, query, {0, rows_.tokens()}, {}};
  }

 private:
  BlockStore& rows_;
  std::unique_ptr<RetrievalPolicy> policy_;

 public:
  PolicyIndex index;
  std::vector<std::vector<std::uint32_t>> lists;
};

constexpr KvShape exact_shape{
    .layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = Dtype::f32};

/// Fills rows so that tokens p and p + kinds have one key: nothing else is in any cluster.
void fill_with_equal_keys(BlockStore& rows, std::uint64_t stream, std::size_t kinds) {
  Rng rng(testing::seed(), {stream});
  std::vector<float> keys(kinds * 2 * 16);
  for (float& x : keys) x = testing::normal(rng);
  rows.fill([&](std::size_t p, std::size_t head, std::size_t i) {
    return i < 16 ? keys[(p % kinds * 2 + head) * 16 + i] : testing::normal(rng);
  });
}

// Outputs are means of values of size 1, of f32 pseudo-rows and biases: wrong by some 1e-7 each.
constexpr double attention_tolerance = 1e-5;

TEST(Wave, HasTheSlotsOfItsRule) {
  const auto policy = policies::make_retrieval_policy("wave").value();
  EXPECT_EQ(policy->index_layout(shape).value().chunk_bytes,
            shape.kv_heads * kernels::cluster_plane_bytes(shape, wave_clusters));
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

TEST(Wave, MakesAClusterOfEverySixteenTokensOfASegment) {
  BlockStore rows(shape, 16, sinks + 1060);
  rows.fill_normal(140);
  const auto policy =
      policies::make_retrieval_policy("wave", {.wave = {.segment_tokens = 512}}).value();
  // Prompts of n tokens: whole segments of 32 clusters, and what is left by the same rule, at
  // least one.
  constexpr std::pair<std::size_t, std::size_t> expected[] = {
      {1, 1},        {15, 1},         {16, 1},    {17, 1},    {31, 1},   {32, 2},
      {33, 2},       {511, 31},       {512, 32},  {513, 33},  {527, 33}, {528, 33},
      {544, 32 + 2}, {1023, 32 + 31}, {1024, 64}, {1025, 65}, {1056, 66}};
  for (const auto& [count, made] : expected) {
    PolicyIndex index(*policy, rows, sinks);
    index.build(sinks + count);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const auto all = clusters_of(index).members(head);
      EXPECT_EQ(all.size(), made) << count << ", " << testing::seed_text();
    }
  }
  // Batches that leave the window: the same rule again, below a segment.
  for (const auto& [count, made] : {std::pair{64UL, 4UL},
                                    {65UL, 4UL},
                                    {79UL, 4UL},
                                    {80UL, 5UL},
                                    {255UL, 15UL},
                                    {256UL, 16UL}}) {
    PolicyIndex index(*policy, rows, sinks);
    index.build(sinks + 512);
    index.extend(sinks + 512 + count);
    EXPECT_EQ(clusters_of(index).members(0).size(), 32 + made) << count;
  }
}

TEST(Wave, GivesAKeyFarFromAllOthersAClusterOfItsOwn) {
  constexpr std::size_t far = 333;
  BlockStore rows(shape, 16, 700);
  Rng rng(testing::seed(), {141});
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return testing::normal(rng) + (p == far && i == 3 ? 3e4F : 0.0F);  // f16 ends at 65,504
  });
  const auto policy = policies::make_retrieval_policy("wave").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(640);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    std::size_t alone = 0;
    for (const auto& [cluster, positions] : clusters_of(index).members(head)) {
      if (std::ranges::find(positions, far) != positions.end()) alone = positions.size();
    }
    EXPECT_EQ(alone, 1U) << testing::seed_text();
  }
  // A query that looks at the far row finds it first, one that looks away from it last; neither
  // meets anything but numbers.
  std::vector<float> query = query_of(142);
  for (const bool towards : {true, false}) {
    for (std::size_t q = 0; q < shape.query_heads; ++q) {
      query[q * shape.head_dim + 3] = towards ? 1.0F : -1.0F;
    }
    for (const auto& list : index.select(query, 640, towards ? 1 : 640 - sinks - 1)) {
      EXPECT_EQ(std::ranges::binary_search(list, far), towards);
    }
  }
}

TEST(Wave, KeepsSizesAndMeansOfKeysAndValues) {
  BlockStore rows(shape, 16, 1600);
  rows.fill_normal(109);
  const auto policy = policies::make_retrieval_policy("wave").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1300);
  index.extend(1364);
  index.extend(1600);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    std::vector<std::size_t> all;
    for (const auto& [cluster, positions] : clusters_of(index).members(head)) {
      all.insert(all.end(), positions.begin(), positions.end());
    }
    EXPECT_EQ(all.size(), 1600 - sinks);
    clusters_of(index).expect_means_of_members(rows, head, 1e-3);  // f16 below 2
  }
}

TEST(Wave, IsPlainSphericalKmeansOfCentredKeysInOneSegment) {
  constexpr std::size_t count = 480;  // so few that no search of them is rounded
  BlockStore rows(exact_shape, 16, sinks + count);
  Rng rng(testing::seed(), {110});
  std::vector<float> keys(count * 16);
  // Each key has its opposite beside it, so that their mean is 0 without rounding.
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = i / 16 % 2 == 0 ? testing::normal(rng) : -keys[i - 16];
  }
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return i < 16 && p >= sinks ? keys[(p - sinks) * 16 + i] : 1.0F;
  });
  const auto policy =
      policies::make_retrieval_policy("wave", {.wave = {.metric = kernels::Metric::cosine}})
          .value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(sinks + count);
  std::vector<std::uint32_t> seeds;
  for (std::uint32_t c = 0; c < count / 16; ++c) seeds.push_back(16 * c + 8);
  std::vector<float> centroids(count / 16 * 16);
  std::vector<std::uint32_t> labels(count);
  kernels::reference::kmeans({.rows = keys.data(), .row_count = count, .dims = 16},
                             {.clusters = count / 16,
                              .iterations = index.request({}).iterations,
                              .metric = kernels::Metric::cosine,
                              .initial_rows = seeds},
                             {.centroids = centroids.data(), .labels = labels.data()});
  // Rounding may give a key that lies midway to the other side; few lie so.
  std::size_t different = 0;
  for (const auto& [cluster, positions] :
       ClustersOf(index, exact_shape, wave_clusters).members(1)) {
    std::map<std::uint32_t, std::size_t> found;
    for (const std::size_t p : positions) ++found[labels[p - sinks]];
    const auto most = std::ranges::max_element(
        found, [](const auto& a, const auto& b) { return a.second < b.second; });
    different += positions.size() - most->second;
  }
  EXPECT_LE(different, count / 100) << testing::seed_text();
}

TEST(Wave, FlushesGiveTheIndexThatIsBuiltAtOnceFromTheSameSegments) {
  BlockStore rows(shape, 16, sinks + 1024);
  rows.fill_normal(111);
  const auto policy =
      policies::make_retrieval_policy("wave", {.wave = {.segment_tokens = 256}}).value();
  PolicyIndex grown(*policy, rows, sinks);
  grown.build(sinks + 256);
  for (std::size_t end = 512; end <= 1024; end += 256) grown.extend(sinks + end);
  PolicyIndex at_once(*policy, rows, sinks);
  at_once.build(sinks + 1024);
  EXPECT_EQ(grown.chunks(), at_once.chunks()) << testing::seed_text();
}

TEST(Wave, IsFullAttentionWhenItAttendsToEveryCluster) {
  BlockStore rows(exact_shape, 16, 700);
  rows.fill_normal(120);
  Estimates wave(rows, {});
  const std::vector<float> query = query_of(121);
  EXPECT_LT(wave.attend(query, 700).error(wave.attend_to_all(query)), attention_tolerance);
}

TEST(Wave, EstimatesExactlyWhenEveryClusterHasOneToken) {
  BlockStore rows(exact_shape, 16, 400);
  rows.fill_normal(112);
  Estimates wave(rows, {.tokens_per_cluster = 1});
  const std::vector<float> query = query_of(113);
  const Attended attended = wave.attend(query, 0);
  EXPECT_EQ(wave.index.pseudo_counts[0], 400 - 60 - sinks);
  EXPECT_LE(attended.error(wave.attend_to_all(query)), attention_tolerance) << testing::seed_text();
}

TEST(Wave, EstimatesExactlyWhenTheKeysOfEachClusterAreEqual) {
  BlockStore rows(exact_shape, 16, 700);
  fill_with_equal_keys(rows, 114, 30);
  Estimates wave(rows, {});
  for (std::uint64_t stream = 115; stream < 120; ++stream) {
    const std::vector<float> query = query_of(stream);
    const Attended exact = wave.attend_to_all(query);
    for (const std::size_t count : {0U, 100U}) {
      EXPECT_LE(wave.attend(query, count).error(exact), attention_tolerance)
          << count << ", " << testing::seed_text();
      EXPECT_GT(wave.index.pseudo_counts[0], 0U);
    }
  }
}

TEST(Wave, AnEstimateIsTheWeightedFormOfItsCluster) {
  // (sum of e^z v + sum of e^zc V) / (sum of e^z + sum of s e^zc), V the sum of a cluster's values.
  BlockStore rows(exact_shape, 16, 700);
  rows.fill_normal(120);
  Estimates wave(rows, {.spreads = false});
  const std::vector<float> query = query_of(121);
  const Attended attended = wave.attend(query, 0);
  for (std::size_t q = 0; q < 4; ++q) {
    const std::size_t head = q / 2;
    std::vector<double> sum(16);
    double weights = 0;
    const auto add = [&](const std::vector<std::size_t>& positions) {
      double logit = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        for (const std::size_t p : positions) {
          logit += double{query[q * 16 + i]} * double{rows.key(head, p, i)} * 0.25 /
                   static_cast<double>(positions.size());
        }
      }
      weights += std::exp(logit) * static_cast<double>(positions.size());
      for (const std::size_t p : positions) {
        for (std::size_t i = 0; i < 16; ++i) {
          sum[i] += std::exp(logit) * double{rows.key(head, p, 16 + i)};
        }
      }
    };
    for (std::size_t p = 0; p < 700; ++p) {
      if (p < sinks || p >= 700 - 60) add({p});
    }
    for (const auto& [c, positions] :
         ClustersOf(wave.index, exact_shape, wave_clusters).members(head)) {
      add(positions);
    }
    for (std::size_t i = 0; i < 16; ++i) {
      // Means of f32 that err by 6e-8 of themselves, and logits of below 8 by as much of theirs.
      EXPECT_NEAR(double{attended.output[q * 16 + i]}, sum[i] / weights, 1e-6);
    }
  }
}

TEST(Wave, MassesOfExactEstimatedAndRestSumToOne) {
  constexpr std::size_t kinds = 30;
  BlockStore rows(exact_shape, 16, 700);
  fill_with_equal_keys(rows, 122, kinds);
  Estimates wave(rows, {.estimated_share = 0.2});
  const std::vector<float> query = query_of(123);
  wave.attend(query, 100);
  const std::size_t stride = wave.index.pseudo_bias.size() / 2;
  for (std::size_t q = 0; q < 4; ++q) {
    const std::size_t head = q / 2;
    const auto weight = [&](const void* key) {
      double dot = 0;
      for (std::size_t i = 0; i < 16; ++i) {
        dot += double{query[q * 16 + i]} * double{load_f32(key, Dtype::f32, i)};
      }
      return std::exp(0.25 * dot);
    };
    const auto equal_keys = [](const void* a, const void* b) {
      for (std::size_t i = 0; i < 16; ++i) {
        if (std::abs(load_f32(a, Dtype::f32, i) - load_f32(b, Dtype::f32, i)) > 1e-6F) return false;
      }
      return true;
    };
    double estimated = 0;
    std::vector<bool> stands_for(kinds);
    for (std::size_t i = 0; i < wave.index.pseudo_counts[head]; ++i) {
      const std::byte* const row = wave.index.pseudo_rows[head * stride + i];
      estimated += weight(row) * std::exp(double{wave.index.pseudo_bias[head * stride + i]});
      for (std::size_t kind = 0; kind < kinds; ++kind) {
        if (equal_keys(row, rows.row(head, kind))) stands_for[kind] = true;
      }
    }
    double all = 0;
    double exact = 0;
    double rest = 0;
    const auto& list = wave.lists[head];
    for (std::size_t p = 0; p < 700; ++p) {
      const double one = weight(rows.row(head, p));
      all += one;
      if (p < sinks || p >= 700 - 60 || std::ranges::binary_search(list, p)) {
        exact += one;
      } else if (!stands_for[p % kinds]) {
        rest += one;
      }
    }
    EXPECT_GT(estimated, 0);
    EXPECT_GT(rest, 0);
    EXPECT_NEAR((exact + estimated + rest) / all, 1, 1e-5) << testing::seed_text();
  }
}

TEST(Wave, ErrsLessTheMoreItEstimates) {
  BlockStore rows(exact_shape, 16, 1100);
  rows.fill_normal(124);
  double before = HUGE_VAL;
  for (const double share : {0.0, 0.1, 0.4, 1.0}) {
    Estimates wave(rows, {.estimated_share = share});
    double error = 0;
    for (std::uint64_t stream = 130; stream < 162; ++stream) {
      const std::vector<float> query = query_of(stream);
      error += wave.attend(query, 100).error(wave.attend_to_all(query));
    }
    EXPECT_LT(error, before) << share << ", " << testing::seed_text();
    before = error;
  }
}

TEST(Wave, EachCandidateIsAttendedOrEstimatedOnce) {
  BlockStore rows(shape, 16, 1600);
  rows.fill_normal(102);
  const auto policy = policies::make_retrieval_policy("wave", {.wave = {.spreads = true}}).value();
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

TEST(Wave, KnowsNothingOfBatchesThatWereCutOff) {
  BlockStore rows(shape, 16, 1600);
  rows.fill_normal(107);
  const auto policy = policies::make_retrieval_policy("wave").value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(1400);
  index.extend(1464);
  const auto expected = index.select(query_of(108), 1420, 200);
  const auto rows_before = index.pseudo_rows;
  const auto bias_before = index.pseudo_bias;
  const auto counts_before = index.pseudo_counts;
  index.extend(1528);  // into the same chunk
  index.truncate(1464);
  EXPECT_EQ(index.select(query_of(108), 1420, 200), expected);
  EXPECT_EQ(index.pseudo_counts, counts_before);
  const std::size_t stride = policy->pseudo_capacity(index.indexed().size());
  for (std::size_t head = 0; head < expected.size(); ++head) {
    for (std::size_t i = head * stride; i < head * stride + counts_before[head]; ++i) {
      EXPECT_EQ(index.pseudo_rows[i], rows_before[i]);
      EXPECT_EQ(index.pseudo_bias[i], bias_before[i]);
    }
  }
}

TEST(Wave, NeedsNoAttentionWithABiasWhereItEstimatesNothing) {
  const auto policy =
      policies::make_retrieval_policy("wave", {.wave = {.estimated_share = 0}}).value();
  EXPECT_FALSE(policy->traits().gives_pseudo_entries);
  EXPECT_FALSE(policy->traits().gives_logit_bias);
  BlockStore rows(shape, 16, 700);
  rows.fill_normal(109);
  PolicyIndex index(*policy, rows, sinks);
  index.build(700);
  EXPECT_GT(index.select(query_of(110), 640, 100)[0].size(), 80U);
}

TEST(Wave, AssignsTheSameWayWhenAllKeysMoveByOneVectorAndMovesCentroidsByIt) {
  const auto policy = policies::make_retrieval_policy("wave").value();
  std::map<std::uint32_t, std::vector<std::size_t>> seen[2];
  std::map<std::uint32_t, std::vector<float>> centroids[2];
  for (const bool moved : {false, true}) {
    BlockStore rows(exact_shape, 16, 600);
    Rng rng(testing::seed(), {104});
    rows.fill([&](std::size_t, std::size_t, std::size_t i) {
      // Multiples of 1/64, so that moving them rounds nothing.
      const float x = std::round(testing::normal(rng) * 64) / 64;
      return moved ? x + static_cast<float>(i) : x;
    });
    PolicyIndex index(*policy, rows, sinks);
    index.build(600);
    const ClustersOf made(index, exact_shape, wave_clusters);
    seen[moved ? 1 : 0] = made.members(0);
    for (const auto& [cluster, positions] : seen[moved ? 1 : 0]) {
      const kernels::ClusterPlane plane = made.plane(0, cluster / wave_clusters.slots);
      for (std::size_t i = 0; i < 16; ++i) {
        centroids[moved ? 1 : 0][cluster].push_back(
            load_f32(plane.centroids, Dtype::f32, cluster % wave_clusters.slots * 32 + i));
      }
    }
  }
  EXPECT_EQ(seen[0], seen[1]);
  for (const auto& [cluster, centroid] : centroids[0]) {
    for (std::size_t i = 0; i < 16; ++i) {
      // f32 of means of up to 20: half an ulp is 1e-6.
      EXPECT_NEAR(centroids[1][cluster][i] - centroid[i], static_cast<float>(i), 2e-6F);
    }
  }
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
  }
  EXPECT_LT(before, 1500 - sinks);
}

TEST(Wave, RefusesSettingsThatDoNotFit) {
  using policies::make_retrieval_policy;
  for (const std::size_t tokens : {0U, 257U}) {
    EXPECT_FALSE(
        make_retrieval_policy("wave", {.wave = {.tokens_per_cluster = tokens}}).has_value());
  }
  EXPECT_TRUE(make_retrieval_policy("wave", {.wave = {.tokens_per_cluster = 256}}).has_value());
  for (const std::size_t tokens : {0U, 255U, 257U, 300U}) {
    EXPECT_FALSE(make_retrieval_policy("wave", {.wave = {.segment_tokens = tokens}}).has_value());
  }
  EXPECT_FALSE(make_retrieval_policy("wave", {.wave = {.estimated_share = 2}}).has_value());
}

}  // namespace
}  // namespace terrace
