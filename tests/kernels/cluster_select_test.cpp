#include "terrace/kernels/cluster_select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

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

/// The weights that a query head's clusters are taken to have, together and of one member, and the
/// weight of the rows attended anyway.
struct Weights {
  static constexpr std::size_t clusters = 81;

  Weights(ClusterStore& store, Scene& scene, std::size_t query_head) {
    const std::size_t head = query_head / shape.group();
    const float* const query = scene.queries.data() + query_head * shape.head_dim;
    const auto weight = [&](const std::byte* key) {
      double dot = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        dot += double{query[i]} * double{load_f32(key, shape.dtype, i)};
      }
      return std::exp(dot / std::sqrt(static_cast<double>(shape.head_dim)));
    };
    for (std::uint32_t c = 0; c < clusters; ++c) {
      const auto candidates = std::ranges::count_if(
          store.members(head, c), [](std::size_t p) { return p < tokens - window_tokens; });
      const auto plane = store.plane(head, c / with_values.slots);
      if (candidates == 0) continue;
      member[c] = weight(plane.centroids + c % with_values.slots * shape.row_bytes());
      cluster[c] = static_cast<double>(candidates) * member[c];
    }
    for (std::size_t p = 0; p < tokens; ++p) {
      if (p < first || p >= tokens - window_tokens) steady += weight(store.rows.row(head, p));
    }
    all = std::accumulate(cluster.begin(), cluster.end(), steady);
  }

  std::array<double, clusters> cluster{};
  std::array<double, clusters> member{};
  double steady = 0;
  double all = 0;
};

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

/// Checks that a list of whole clusters has the wanted share of every query head's mass, and not
/// without the cluster that was chosen last.
void expect_as_many_as_it_takes(ClusterStore& store, Scene& scene, std::size_t head) {
  std::vector<Weights> heads;
  for (std::size_t q = 0; q < shape.group(); ++q) {
    heads.emplace_back(store, scene, head * shape.group() + q);
  }
  std::set<std::uint32_t> chosen;
  for (const std::uint32_t p : scene.list(head)) chosen.insert(store.label(head, p - first));
  const auto rank = [&](std::uint32_t c) {
    double sum = 0;
    for (const Weights& one : heads) sum += one.member[c] / one.all;
    return sum;
  };
  const auto least_share = [&] {
    double least = 1;
    for (const Weights& one : heads) {
      double mass = one.steady;
      for (const std::uint32_t c : chosen) mass += one.cluster[c];
      least = std::min(least, mass / one.all);
    }
    return least;
  };
  // Logits err by about 24 * 2^-24, shares by some times that.
  EXPECT_GE(least_share(), scene.op.mass_wanted - 2e-5) << testing::seed_text();
  if (chosen.empty()) return;
  chosen.erase(std::ranges::min_element(chosen, {}, rank));
  EXPECT_LT(least_share(), scene.op.mass_wanted + 2e-5) << testing::seed_text();
}

TEST(MassBudget, StopsASelectionAsSoonAsEveryHeadHasTheWantedShare) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  std::size_t before = 0;
  for (const double wanted : {0.3, 0.5, 0.7, 0.9}) {
    Scene scene(store);
    scene.attend_to(store);
    scene.op.mass_wanted = wanted;
    scene.op.common.count.mean = tokens;
    testing::run(scene.op);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      expect_as_many_as_it_takes(store, scene, head);
    }
    EXPECT_GE(scene.counts[0], before);
    EXPECT_LT(scene.counts[0], tokens - first - window_tokens);
    before = scene.counts[0];
  }
  EXPECT_GT(before, 0U);
}

TEST(MassBudget, IsNotFollowedWhereCandidatesLeaveAGapBeforeTheWindow) {
  ClusterStore store(shape, with_values, first, tokens, 23);
  Scene by_count(store);
  Scene by_mass(store);
  by_mass.op.mass_wanted = 0.5;
  for (Scene* const scene : {&by_count, &by_mass}) {
    scene->attend_to(store);
    scene->op.common.candidates.end -= 3;
    testing::run(scene->op);
  }
  EXPECT_TRUE(by_mass.ids.same_bits(by_count.ids));
}

}  // namespace
}  // namespace terrace
