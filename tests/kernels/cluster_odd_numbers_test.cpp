// Clusters ranked by what is no number, by numbers next to nothing, and by equal ones.
#include <gtest/gtest.h>

#include <functional>

#include "kernels/cluster_scene.hpp"

namespace terrace {
namespace {

using testing::ClusterStore;
using testing::cluster_scene::expect_like_reference;
using testing::cluster_scene::first;
using testing::cluster_scene::Scene;
using testing::cluster_scene::tokens;
using testing::cluster_scene::window_tokens;
using testing::cluster_scene::with_values;

struct Variant {
  std::size_t group = 1;
  ListScope scope = ListScope::kv_head;
  ClusterRanking ranking = ClusterRanking::token_weight;
};

constexpr Variant variants[] = {
    {},
    {.group = 2},
    {.group = 2, .scope = ListScope::query_head},
    {.ranking = ClusterRanking::cluster_weight},
    {.group = 2, .ranking = ClusterRanking::cluster_weight},
    {.group = 2, .scope = ListScope::query_head, .ranking = ClusterRanking::cluster_weight}};

/// An index, and a selection over it to be prepared.
class OddScene {
 public:
  explicit OddScene(const Variant& variant, Dtype dtype = Dtype::f16)
      : shape_(testing::make_shape(variant.group, 2, 16, dtype)),
        store(shape_, with_values, first, tokens, 23),
        scene(store, shape_) {
    scene.op.scope = variant.scope;
    scene.op.ranking = variant.ranking;
    if (variant.scope == ListScope::kv_head) scene.estimate(7);
  }

  /// Selects various numbers of rows, each as the reference does.
  void expect_documented() {
    for (const std::size_t count : {1UL, 33UL, 100UL, 200UL, 260UL}) {
      SCOPED_TRACE(testing::to_text(shape_) + ", count " + std::to_string(count) + ", " +
                   testing::seed_text());
      scene.op.common.count.mean = count;
      std::ranges::fill(scene.ids.span(), 0xffffffffU);  // as `expected` has them
      std::ranges::fill(scene.pseudo_rows.span(), nullptr);
      std::ranges::fill(scene.pseudo_bias.span(), 0.0F);
      testing::run(scene.op);
      Scene expected(store, shape_);
      expect_like_reference(scene, scene.op, expected);
      EXPECT_TRUE(scene.intact() && store.intact());
    }
  }

 private:
  KvShape shape_;

 public:
  ClusterStore store;
  Scene scene;
};

TEST(OddClusters, AreRankedAsDocumented) {
  const float odd[] = {std::nanf(""), -HUGE_VALF, HUGE_VALF, 1, -HUGE_VALF, 3, -1, 2};
  std::size_t number = 0;
  for (const Variant& variant : variants) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
      // Numbers alone, with infinities, and with all there is.
      for (const std::size_t from : {5UL, 1UL, 0UL}) {
        if (!testing::takes_shape(number++)) continue;
        OddScene odds(variant, dtype);
        std::ranges::fill(odds.scene.queries.span(), 1.0F);
        odds.store.fill_centroids([&](std::size_t c, std::size_t i) {
          return i == 0 ? odd[from + c / 3 % (8 - from)] : 0.0F;
        });
        odds.expect_documented();
      }
    }
  }
}

TEST(OddClusters, AreTakenLastWhereTheyAreNoNumbers) {
  for (const Variant& variant : variants) {
    if (variant.group > 1 && variant.scope == ListScope::kv_head) continue;  // there they tie
    OddScene odds(variant);
    std::ranges::fill(odds.scene.queries.span(), 1.0F);
    odds.store.fill_centroids(
        [](std::size_t c, std::size_t) { return c < 9 ? std::nanf("") : -HUGE_VALF; });
    std::size_t numbers = 0;
    for (std::size_t p = first; p < tokens - window_tokens; ++p) {
      numbers += odds.store.label(0, p - first) < 9 ? 0U : 1U;
    }
    odds.scene.op.common.count.mean = numbers;
    testing::run(odds.scene.op);
    EXPECT_EQ(odds.scene.counts[0], numbers);
    for (const std::uint32_t id : odds.scene.list(0)) {
      EXPECT_GE(odds.store.label(0, id - first), 9U) << testing::seed_text();
    }
  }
}

TEST(OddClusters, MayBeAskedForByOddQueries) {
  std::size_t number = 0;
  for (const Variant& variant : variants) {
    for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
      if (!testing::takes_shape(number++)) continue;
      OddScene odds(variant);
      odds.scene.queries[3] = odd;
      odds.expect_documented();
    }
  }
}

// In the normaliser NaN counts as nothing, and next to infinity nothing is left.
TEST(OddClusters, MayStandBesideOddRows) {
  for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    OddScene odds({.group = 2});
    store_f32(odds.store.rows.row(0, tokens - 3), Dtype::f16, 2, odd);
    odds.scene.attend_to(odds.store);
    odds.expect_documented();
  }
}

TEST(OddClusters, AreRankedWhereTheyAreDenormal) {
  for (const Variant& variant : {variants[0], variants[2]}) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
      const float tiny = dtype == Dtype::f16 ? 0x1p-24F : 0x1p-130F;
      OddScene odds(variant, dtype);
      Rng rng(testing::seed(), {34});
      for (float& x : odds.scene.queries.span()) x = std::floor(x);
      odds.store.fill_centroids(
          [&](std::size_t, std::size_t) { return static_cast<float>(rng.below(64)) * tiny; });
      odds.expect_documented();
    }
  }
}

// However many members each has.
TEST(OddClusters, AreTakenByTheirNumbersWhereTheyAreEqual) {
  for (const Variant& variant : variants) {
    OddScene odds(variant);
    odds.store.fill_centroids(
        [](std::size_t, std::size_t i) { return static_cast<float>(i) / 10 - 0.3F; });
    odds.expect_documented();
  }
}

}  // namespace
}  // namespace terrace
