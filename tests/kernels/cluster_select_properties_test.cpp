// Properties of a selection of clusters for any numbers.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "kernels/cluster_scene.hpp"

namespace terrace {
namespace {

using testing::ClusterStore;
using testing::cluster_scene::first;
using testing::cluster_scene::Scene;
using testing::cluster_scene::shape;
using testing::cluster_scene::tokens;
using testing::cluster_scene::window_tokens;
using testing::cluster_scene::with_values;

/// The candidates of a cluster, what a list takes of them, and the query's product with their mean.
struct ClusterShare {
  std::size_t candidates = 0;
  std::size_t taken = 0;
  double logit = 0;

  [[nodiscard]] bool cut() const { return taken > 0 && taken < candidates; }
};

/// Returns the clusters that query head `q` chooses from, in a scene of lists per query head.
std::vector<ClusterShare> shares_of(ClusterStore& store, Scene& scene, std::size_t q) {
  const std::size_t head = q / shape.group();
  const auto ids = scene.list(q);
  std::vector<ClusterShare> shares;
  for (std::uint32_t c = 0; c < 9 * with_values.slots; ++c) {
    ClusterShare share;
    for (const std::size_t p : store.members(head, c)) {
      share.candidates += p < tokens - window_tokens ? 1U : 0U;
      share.taken += std::ranges::binary_search(ids, p) ? 1U : 0U;
    }
    if (share.candidates == 0) continue;
    const std::byte* const centroid =
        store.plane(head, c / with_values.slots).centroids +
        c % with_values.slots * kernels::centroid_bytes(shape, with_values);
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      share.logit += double{scene.queries[q * shape.head_dim + i]} *
                     double{load_f32(centroid, shape.dtype, i)};
    }
    shares.push_back(share);
  }
  return shares;
}

TEST(ClusterSelect, CutsOnlyTheLastClusterAndTakesNoneBelowOneLeftOut) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Scene scene(store);
  scene.op.scope = ListScope::query_head;
  testing::run(scene.op);
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    ASSERT_EQ(scene.list(q).size(), 100U);
    double worst_whole = HUGE_VAL;
    double best_left_out = -HUGE_VAL;
    std::vector<double> cut;
    for (const ClusterShare& share : shares_of(store, scene, q)) {
      if (share.cut()) {
        cut.push_back(share.logit);
      } else if (share.taken > 0) {
        worst_whole = std::min(worst_whole, share.logit);
      } else {
        best_left_out = std::max(best_left_out, share.logit);
      }
    }
    ASSERT_LT(worst_whole, HUGE_VAL);
    ASSERT_GT(best_left_out, -HUGE_VAL);
    // Sums of 24 f32 products below 10: wrong by less than 1e-4 all together.
    EXPECT_GE(worst_whole, best_left_out - 1e-4) << q << ", " << testing::seed_text();
    EXPECT_LE(cut.size(), 1U);
    for (const double logit : cut) {
      EXPECT_LE(logit, worst_whole + 1e-4) << q << ", " << testing::seed_text();
      EXPECT_GE(logit, best_left_out - 1e-4) << q << ", " << testing::seed_text();
    }
  }
}

TEST(ClusterSelect, KeepsTheLowestPositionsOfTheOnlyCluster) {
  ClusterStore store(shape, with_values, first, tokens, 1);
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    for (const std::size_t count : {1UL, 33UL, 100UL, 1000UL}) {
      Scene scene(store);
      scene.op.scope = scope;
      scene.op.common.count.mean = count;
      testing::run(scene.op);
      std::vector<std::uint32_t> lowest(std::min(count, tokens - first - window_tokens));
      std::iota(lowest.begin(), lowest.end(), static_cast<std::uint32_t>(first));
      for (std::size_t list = 0; list < list_count(shape, scope); ++list) {
        EXPECT_EQ(scene.list(list), lowest) << list << ", count " << count;
      }
    }
  }
}

/// Returns lists per query head; only the order of products with centroids matters.
std::vector<std::vector<std::uint32_t>> lists_per_query_head(Scene& scene) {
  scene.op.scope = ListScope::query_head;
  testing::run(scene.op);
  std::vector<std::vector<std::uint32_t>> lists;
  for (std::size_t q = 0; q < shape.query_heads; ++q) lists.push_back(scene.list(q));
  return lists;
}

/// Replaces element i of every centroid's key by change(i, element).
template <typename Change>
void change_centroids(ClusterStore& store, const Change& change) {
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    for (std::uint32_t c = 0; c < 9 * with_values.slots; ++c) {
      std::byte* const centroid =
          store.plane(head, c / with_values.slots).centroids +
          c % with_values.slots * kernels::centroid_bytes(shape, with_values);
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        store_f32(centroid, shape.dtype, i, change(i, load_f32(centroid, shape.dtype, i)));
      }
    }
  }
}

TEST(ClusterSelect, DoesNotDependOnTheScaleOfAllCentroids) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Scene scene(store);
  const auto expected = lists_per_query_head(scene);
  // A power of two rounds nothing.
  change_centroids(store, [](std::size_t, float x) { return 4 * x; });
  EXPECT_EQ(lists_per_query_head(scene), expected) << testing::seed_text();
  change_centroids(store, [](std::size_t, float x) { return -x; });
  EXPECT_NE(lists_per_query_head(scene), expected) << "a scale below zero turns the order round";
}

TEST(ClusterSelect, DoesNotSeeWhatIsOrthogonalToTheQuery) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Scene scene(store);
  // No query has anything along the last two elements.
  constexpr std::size_t seen = shape.head_dim - 2;
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    std::fill_n(scene.queries.data() + q * shape.head_dim + seen, 2, 0.0F);
  }
  const auto per_query_head = lists_per_query_head(scene);
  scene.op.scope = ListScope::kv_head;
  testing::run(scene.op);
  const auto per_kv_head = scene.list(0);
  change_centroids(store, [](std::size_t i, float x) { return i < seen ? x : x + 50; });
  EXPECT_EQ(lists_per_query_head(scene), per_query_head) << testing::seed_text();
  scene.op.scope = ListScope::kv_head;
  testing::run(scene.op);
  EXPECT_EQ(scene.list(0), per_kv_head) << testing::seed_text();
}

TEST(ClusterSelect, IsExactTopKWhenEveryClusterHasOneToken) {
  const ClusterShape singles{.chunk_tokens = 40, .slots = 40};
  ClusterStore store(shape, singles, first, tokens, 23);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    for (std::uint32_t t = 0; t < tokens - first; ++t) store.label(head, t) = t;
  }
  store.write_clusters();
  Scene scene(store, shape, singles);
  scene.op.scope = ListScope::query_head;
  testing::run(scene.op);
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    std::vector<std::pair<double, std::uint32_t>> order;
    for (std::uint32_t p = first; p < tokens - window_tokens; ++p) {
      double dot = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        dot += double{scene.queries[q * shape.head_dim + i]} *
               double{store.rows.key(q / shape.group(), p, i)};
      }
      order.emplace_back(-dot, p);
    }
    std::ranges::sort(order);
    std::vector<std::uint32_t> expected;
    for (std::size_t i = 0; i < 100; ++i) expected.push_back(order[i].second);
    std::ranges::sort(expected);
    EXPECT_EQ(scene.list(q), expected) << testing::seed_text();
  }
}

TEST(ClusterSelect, ABigModerateClusterWinsByClusterWeightAlone) {
  ClusterStore store(shape, with_values, first, tokens, 2);
  Scene scene(store);
  // 20 tokens of logit 2 against the rest of logit 1.
  const auto big = [](std::size_t token) { return token >= 20; };
  const double scale = std::sqrt(static_cast<double>(shape.head_dim));
  store.rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return i == 0 ? (p >= first && !big(p - first) ? 2.0F : 1.0F) : 0.0F;
  });
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    for (std::size_t t = 0; t < tokens - first; ++t) store.label(head, t) = big(t) ? 3U : 0U;
  }
  store.write_clusters();
  std::fill_n(scene.queries.data(), scene.queries.size(), 0.0F);
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    scene.queries[q * shape.head_dim] = static_cast<float>(scale);
  }
  scene.op.common.count.mean = 10;
  testing::run(scene.op);
  EXPECT_EQ(scene.list(0).front(), first);
  scene.op.ranking = ClusterRanking::cluster_weight;
  testing::run(scene.op);
  EXPECT_EQ(scene.list(0).front(), first + 20);
}

TEST(ClusterSelect, DoesNotDependOnTheOrderOfQueryHeads) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Scene one(store);
  one.attend_to(store);
  testing::run(one.op);
  Scene two(store);
  two.attend_to(store);
  testing::run(two.op);
  EXPECT_TRUE(one.ids.same_bits(two.ids));
  for (std::size_t i = 0; i < shape.head_dim; ++i) {
    std::swap(two.queries[i], two.queries[shape.head_dim + i]);
  }
  testing::run(two.op);
  EXPECT_EQ(one.list(0), two.list(0));
}

TEST(ClusterSelect, TakesAQueryHeadTwiceForNothingNew) {
  KvShape doubled = shape;
  doubled.query_heads = 2 * shape.query_heads;
  ClusterStore store(shape, with_values, first, tokens, 23);
  for (const auto& [scope, mass] :
       {std::pair{ListScope::kv_head, 0.0}, std::pair{ListScope::kv_head, 0.5},
        std::pair{ListScope::query_head, 0.5}}) {
    Scene once(store);
    Scene twice(store, doubled);
    for (std::size_t i = 0; i < twice.queries.size(); ++i) {
      const std::size_t q = i / shape.head_dim / 2;
      twice.queries[i] = once.queries[q * shape.head_dim + i % shape.head_dim];
    }
    for (Scene* const scene : {&once, &twice}) {
      scene->attend_to(store);
      scene->op.scope = scope;
      scene->op.mass_wanted = mass;
      testing::run(scene->op);
    }
    const std::size_t copies = scope == ListScope::kv_head ? 1 : 2;
    for (std::size_t list = 0; list < list_count(doubled, scope); ++list) {
      EXPECT_EQ(twice.list(list), once.list(list / copies)) << list << ", " << testing::seed_text();
    }
  }
}

TEST(ClusterSelect, DoesNotDependOnTheRoomThatThereIsForClusters) {
  ClusterShape roomy = with_values;
  roomy.slots = 1200;
  ClusterStore few(shape, with_values, first, tokens, 23);
  ClusterStore many(shape, roomy, first, tokens, 23);
  Scene one(few);
  Scene two(many, shape, roomy);
  const auto choose = [](Scene& scene, const ClusterStore& store) {
    scene.attend_to(store);
    scene.estimate(7);
    testing::run(scene.op);
  };
  choose(one, few);
  choose(two, many);
  EXPECT_TRUE(one.ids.same_bits(two.ids));
  for (std::size_t list = 0; list < shape.kv_heads; ++list) {
    for (std::size_t i = 0; i < 7; ++i) {
      const std::size_t at = list * Scene::pseudo_max + i;
      EXPECT_EQ(std::memcmp(one.pseudo_rows[at], two.pseudo_rows[at], shape.row_bytes()), 0);
    }
  }
}

TEST(ClusterSelect, LetsAClusterWeighMoreByItsSpread) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  const float variances[] = {0.0F, 0.25F, 100.0F};
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    for (std::uint32_t c = 0; c < 81; ++c)
      store.plane(head, c / 9).variance[c % 9] = variances[c % 3];
  }
  Scene scene(store);
  scene.op.spreads = true;
  scene.op.common.count.mean = 0;
  scene.estimate(Scene::pseudo_max);
  testing::run(scene.op);
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    double square = 0;  // |q|^2 / head_dim, of the group in the mean
    const std::size_t elements = shape.group() * shape.head_dim;
    for (std::size_t i = 0; i < elements; ++i) {
      const double x = double{scene.queries[head * elements + i]};
      square += x * x / static_cast<double>(elements);
    }
    std::size_t entry = 0;
    for (std::uint32_t c = 0; c < 81; ++c) {
      const auto members = store.members(head, c);
      const auto candidates =
          std::ranges::count_if(members, [](std::size_t p) { return p < tokens - window_tokens; });
      if (candidates == 0) continue;
      const double spread = std::min(0.5 * square * double{variances[c % 3]}, 3.0);
      EXPECT_NEAR(double{scene.pseudo_bias[head * Scene::pseudo_max + entry]},
                  std::log(static_cast<double>(candidates)) + spread, 1e-5);
      ++entry;
    }
    EXPECT_EQ(scene.pseudo_counts[head], entry);
  }
}

TEST(ClusterSelect, NeverChoosesANanScoreBeforeOthersNorAnEmptyCluster) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Scene scene(store);
  std::size_t spoilt = 0;
  for (std::uint32_t c = 0; c < 9; c += 3) {
    store.plane(0, 0).centroids[c * shape.row_bytes() + 1] = std::byte{0x7f};  // f16 NaN
    spoilt += store.members(0, c).size();
  }
  scene.op.common.count.mean = tokens - first - window_tokens;
  scene.estimate(Scene::pseudo_max);
  testing::run(scene.op);
  EXPECT_EQ(scene.list(0).size(), tokens - first - window_tokens);
  EXPECT_EQ(scene.pseudo_counts[0], 0U);
  scene.op.common.count.mean -= spoilt;
  testing::run(scene.op);
  for (std::uint32_t c = 0; c < 9; c += 3) {
    for (const std::size_t p : store.members(0, c)) {
      EXPECT_FALSE(std::ranges::binary_search(scene.list(0), p)) << p;
    }
  }
}

}  // namespace
}  // namespace terrace
