#include "terrace/kernels/cluster_select.hpp"

#include <gtest/gtest.h>

#include "kernels/cluster_scene.hpp"
#include "kernels/dealt_shares.hpp"
#include "kernels/finds_fault.hpp"

namespace terrace {
namespace {

using testing::ClusterStore;
using testing::cluster_scene::expect_like_reference;
using testing::cluster_scene::first;
using testing::cluster_scene::Scene;
using testing::cluster_scene::shape;
using testing::cluster_scene::tokens;
using testing::cluster_scene::window_tokens;
using testing::cluster_scene::with_values;

/// Exact attention mass of a query head on sinks, window and its list.
double exact_mass(const ClusterStore& store, Scene& scene, std::size_t query_head,
                  std::size_t list) {
  const KvShape& kv = scene.op.common.shape;
  std::vector<bool> attended(tokens);
  std::fill(attended.begin(), attended.begin() + first, true);
  std::fill(attended.end() - window_tokens, attended.end(), true);
  for (const std::uint32_t id : scene.list(list)) attended[id] = true;
  double all = 0;
  double part = 0;
  for (std::size_t p = 0; p < tokens; ++p) {
    double dot = 0;
    for (std::size_t i = 0; i < kv.head_dim; ++i) {
      dot += double{scene.queries[query_head * kv.head_dim + i]} *
             double{store.rows.key(query_head / kv.group(), p, i)};
    }
    const double weight = std::exp(dot / std::sqrt(static_cast<double>(kv.head_dim)));
    all += weight;
    if (attended[p]) part += weight;
  }
  return part / all;
}

struct Variant {
  ListScope scope = ListScope::kv_head;
  ClusterRanking ranking = ClusterRanking::token_weight;
  bool trims = true;
  bool normalised_over_all = false;
  std::size_t estimated = 0;
};

TEST(ClusterSelect, ChoosesWhatTheReferenceChooses) {
  const Variant variants[] = {
      {},
      {.scope = ListScope::query_head},
      {.ranking = ClusterRanking::cluster_weight, .trims = false},
      {.trims = false, .normalised_over_all = true, .estimated = 40},
      {.normalised_over_all = true, .estimated = 7},
      {.scope = ListScope::query_head, .ranking = ClusterRanking::cluster_weight}};
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    for (const std::size_t group : {1UL, 3UL, 5UL}) {
      KvShape kv = shape;
      kv.query_heads = kv.kv_heads * group;
      kv.dtype = dtype;
      ClusterStore store(kv, with_values, first, tokens, 23);
      for (const Variant& variant : variants) {
        for (const std::size_t count : {0UL, 1UL, 33UL, 100UL, 1000UL}) {
          if (!testing::takes_shape(number++)) continue;
          Scene scene(store, kv);
          scene.op.common.count.mean = count;
          scene.op.scope = variant.scope;
          scene.op.ranking = variant.ranking;
          scene.op.trims = variant.trims;
          if (variant.normalised_over_all) scene.attend_to(store);
          if (variant.estimated > 0) scene.estimate(variant.estimated);
          testing::run(scene.op);
          Scene expected(store, kv);
          SCOPED_TRACE(testing::to_text(kv) + ", count " + std::to_string(count) + ", " +
                       testing::seed_text());
          expect_like_reference(scene, scene.op, expected);
          EXPECT_TRUE(scene.intact() && store.intact());
        }
      }
    }
  }
}

TEST(ClusterSelect, DealsRowsOutOverHeads) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    Scene scene(store);
    scene.op.scope = scope;
    scene.op.common.count = {.mean = 50, .shares = testing::dealt_shares.data()};
    testing::run(scene.op);
    Scene expected(store);
    expect_like_reference(scene, scene.op, expected);
    for (std::size_t list = 0; list < list_count(shape, scope); ++list) {
      EXPECT_EQ(scene.counts[list], list / lists_per_kv_head(shape, scope) == 0 ? 25U : 75U);
    }
  }
}

TEST(ClusterSelect, FindsWhatIsSelectedByAnotherRule) {
  using Mutation = void (*)(ClusterSelect&);
  const Mutation mutations[] = {
      [](ClusterSelect&) {},
      [](ClusterSelect& op) { op.common.count.mean -= 1; },
      [](ClusterSelect& op) { op.common.candidates.end -= 60; },
      [](ClusterSelect& op) { op.estimated -= 1; },
      [](ClusterSelect& op) { op.trims = false; },
      [](ClusterSelect& op) { op.ranking = ClusterRanking::cluster_weight; },
      [](ClusterSelect& op) { op.common.query += op.common.shape.head_dim; },
  };
  ClusterStore store(shape, with_values, first, tokens, 23);
  for (std::size_t i = 0; i < std::size(mutations); ++i) {
    KvShape kv = shape;
    kv.query_heads = 4;  // of the queries there are: a mutation takes the next head's
    Scene scene(store);
    Scene expected(store);
    scene.op.common.shape = kv;
    scene.estimate(7);
    ClusterSelect mutated = scene.op;
    mutations[i](mutated);
    testing::run(mutated);
    EXPECT_EQ(testing::finds_fault([&] { expect_like_reference(scene, scene.op, expected); }),
              i > 0)
        << i << ", " << testing::seed_text();
  }
}

TEST(MassBounds, HoldTheExactMassOfEveryCluster) {
  constexpr std::size_t dims = 8;
  Rng rng(testing::seed(), {41});
  for (int round = 0; round < 100'000; ++round) {
    const std::size_t count = 1 + rng.below(12);
    const double size = std::exp(4 * rng.uniform() - 2);
    std::vector<double> keys(count * dims);
    double query[dims];
    double norm = 0;
    for (double& x : keys) x = size * double{testing::normal(rng)};
    for (double& x : query) {
      x = 2 * double{testing::normal(rng)};
      norm += x * x;
    }
    double centroid[dims] = {};
    for (std::size_t i = 0; i < keys.size(); ++i) {
      centroid[i % dims] += keys[i] / static_cast<double>(count);
    }
    double rounding = 0;
    for (double& x : centroid) {
      const double stored = double{static_cast<float>(x * (1 + 0.001 * rng.uniform()))};
      rounding += (stored - x) * (stored - x);
      x = stored;
    }
    const bool whole = rng.below(2) == 0;
    const std::size_t counted = whole ? count : 1 + rng.below(count);
    double radius = 0;
    double exact = 0;
    double logit = 0;
    for (std::size_t k = 0; k < count; ++k) {
      double square = 0;
      double dot = 0;
      for (std::size_t i = 0; i < dims; ++i) {
        square += (keys[k * dims + i] - centroid[i]) * (keys[k * dims + i] - centroid[i]);
        dot += keys[k * dims + i] * query[i];
      }
      radius = std::max(radius, square);
      if (k < counted) exact += std::exp(dot / std::sqrt(static_cast<double>(dims)));
    }
    for (std::size_t i = 0; i < dims; ++i)
      logit += centroid[i] * query[i] / std::sqrt(static_cast<double>(dims));
    const double length = std::sqrt(norm / dims);
    const kernels::LogMassBounds bounds =
        kernels::log_mass_bounds({.logit = logit,
                                  .members = static_cast<double>(counted),
                                  .whole = counted == count,
                                  .spread = length * std::sqrt(radius),
                                  .rounding = length * std::sqrt(rounding)});
    // 1e-9: the rounding of sums in double.
    ASSERT_LE(bounds.low, std::log(exact) + 1e-9) << testing::seed_text() << " round " << round;
    ASSERT_GE(bounds.high, std::log(exact) - 1e-9) << testing::seed_text() << " round " << round;
  }
}

// Sums of f32 products err by about 24 * 2^-24 a logit; ten times that covers the sums over tokens.
constexpr double slack = 2e-5;

TEST(MassBounds, HoldTheExactMassOfWhatIsAttended) {
  for (const bool trims : {true, false}) {
    for (const std::size_t count : {0UL, 50UL, 150UL, 400UL}) {
      ClusterStore store(shape, with_values, first, tokens, 23);
      Scene scene(store);
      scene.attend_to(store);
      scene.op.mass = scene.mass.data();
      scene.op.common.count.mean = count;
      scene.op.trims = trims;
      testing::run(scene.op);
      for (std::size_t q = 0; q < shape.query_heads; ++q) {
        const double exact = exact_mass(store, scene, q, q / shape.group());
        EXPECT_LE(double{scene.mass[q].low}, exact + slack) << count;
        EXPECT_GE(double{scene.mass[q].high}, exact - slack) << count;
        EXPECT_GT(scene.mass[q].low, 0.0F);
        EXPECT_LT(count == 400 ? 0.0F : scene.mass[q].high, 1.0F);
      }
    }
  }
}

TEST(MassBounds, MeetWhereTheKeysOfEachClusterAreEqual) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  // The key is a function of the cluster; window tokens have one of their own.
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    for (std::size_t t = 0; t < tokens - first; ++t) {
      if (t + first >= tokens - window_tokens) store.label(head, t) = 70;
    }
  }
  store.rows.fill([&](std::size_t p, std::size_t head, std::size_t i) {
    const std::uint32_t c = p < first ? 0 : store.label(head, p - first);
    return static_cast<float>((c * 7 + i * 3) % 11) / 8 - 0.5F;  // exact in f16
  });
  store.write_clusters();
  Scene scene(store);
  scene.attend_to(store);
  scene.op.mass = scene.mass.data();
  scene.op.trims = false;
  testing::run(scene.op);
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    const double exact = exact_mass(store, scene, q, q / shape.group());
    EXPECT_NEAR(double{scene.mass[q].low}, exact, 3e-4);  // f32 radii of the rounding of f32 sums
    EXPECT_NEAR(double{scene.mass[q].high}, exact, 3e-4);
  }
  // Of a cluster that is cut nothing is certain on either side. Of counts that follow each other
  // one cuts: clusters have more than one member.
  scene.op.trims = true;
  std::vector<double> below(shape.query_heads);
  std::vector<double> above(shape.query_heads);
  for (int more = 0; more < 3; ++more, ++scene.op.common.count.mean) {
    testing::run(scene.op);
    for (std::size_t q = 0; q < shape.query_heads; ++q) {
      const double exact = exact_mass(store, scene, q, q / shape.group());
      below[q] = std::max(below[q], exact - double{scene.mass[q].low});
      above[q] = std::max(above[q], double{scene.mass[q].high} - exact);
    }
  }
  for (std::size_t q = 0; q < shape.query_heads; ++q) {
    EXPECT_GT(below[q], 1e-3) << testing::seed_text();
    EXPECT_GT(above[q], 1e-3) << testing::seed_text();
  }
}

TEST(MassBounds, StopASelectionAsSoonAsTheWantedShareIsCertain) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Rng rng(testing::seed(), {51});
  store.rows.fill([&](std::size_t p, std::size_t head, std::size_t i) {
    const std::uint32_t c = p < first ? 0 : store.label(head, p - first);
    return static_cast<float>((c * 7 + i * 3) % 11) / 2 - 2.5F + 0.1F * testing::normal(rng);
  });
  store.write_clusters();
  std::size_t before = 0;
  for (const double wanted : {0.3, 0.5, 0.7, 0.9}) {
    Scene scene(store);
    scene.attend_to(store);
    scene.op.mass = scene.mass.data();
    scene.op.mass_wanted = wanted;
    scene.op.common.count.mean = tokens;
    testing::run(scene.op);
    for (std::size_t q = 0; q < shape.query_heads; ++q) {
      EXPECT_GE(double{scene.mass[q].low}, wanted - 1e-6);
      EXPECT_GE(exact_mass(store, scene, q, q / shape.group()), wanted - slack);
    }
    EXPECT_GE(scene.counts[0], before);
    if (before == 0) {
      EXPECT_LT(scene.counts[0], tokens - first - window_tokens);
    }
    before = scene.counts[0];
  }
  EXPECT_GT(before, 0U);
}

/// Returns the first list of a selection that stops at half of the mass.
std::vector<std::uint32_t> list_of_half_the_mass(ClusterStore& store, MassStop stop) {
  Scene scene(store);
  scene.attend_to(store);
  scene.op.mass_wanted = 0.5;
  scene.op.mass_stop = stop;
  scene.op.common.count.mean = tokens;
  testing::run(scene.op);
  return scene.list(0);
}

TEST(MassBounds, StopNoLaterByTheEstimate) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  const auto estimated = list_of_half_the_mass(store, MassStop::estimated);
  const auto certain = list_of_half_the_mass(store, MassStop::certain);
  EXPECT_GT(estimated.size(), 0U);
  EXPECT_LT(estimated.size(), certain.size());
}

TEST(MassBounds, AreNoReasonToStopHoweverFarAKeyMayLie) {
  ClusterStore near(shape, with_values, first, tokens, 23);
  for (const MassStop stop : {MassStop::estimated, MassStop::certain}) {
    const auto expected = list_of_half_the_mass(near, stop);
    EXPECT_GT(expected.size(), 0U);
    for (const float radius : {300.0F, 1e6F, std::numeric_limits<float>::infinity()}) {
      ClusterStore far(shape, with_values, first, tokens, 23);
      for (std::size_t head = 0; head < shape.kv_heads; ++head) {
        far.plane(head, 0).radius[0] = radius;
      }
      const auto list = list_of_half_the_mass(far, stop);
      EXPECT_GT(list.size(), 0U);
      // The estimate does not look at it, and certainty comes no sooner.
      if (stop == MassStop::estimated) {
        EXPECT_LT(expected.size(), tokens - first - window_tokens);
        EXPECT_EQ(expected, list) << radius;
      }
      EXPECT_GE(list.size(), expected.size()) << radius;
    }
  }
}

TEST(MassBounds, SayNothingWhenCandidatesLeaveAGapBeforeTheWindow) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Scene scene(store);
  scene.attend_to(store);
  scene.op.mass = scene.mass.data();
  scene.op.common.candidates.end -= 3;
  testing::run(scene.op);
  EXPECT_EQ(scene.mass[0].low, 0.0F);
  EXPECT_EQ(scene.mass[0].high, 1.0F);
}

}  // namespace
}  // namespace terrace
