#include "terrace/kernels/refine.hpp"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/refine_scene.hpp"
#include "terrace/core/op_arguments.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/rotation.hpp"

namespace terrace {
namespace {

using ::testing::HasSubstr;
using testing::make_shape;
using testing::run;
using testing::refine_scene::first;
using testing::refine_scene::no_codes;
using testing::refine_scene::Scene;
using testing::refine_scene::tokens;

/// Checks that the op chooses what the reference chooses, in the memory it is given.
void expect_as_reference(const KvShape& shape, std::size_t bits, PqShape pq, std::size_t count,
                         GroupReduction reduction = GroupReduction::sum_softmax) {
  SCOPED_TRACE(testing::to_text(shape) + ", bits " + std::to_string(bits) + ", sub-spaces " +
               std::to_string(pq.subspaces) + ", count " + std::to_string(count) + ", " +
               testing::seed_text());
  Scene scene(shape, bits, pq);
  Scene expected(shape, bits, pq);
  for (Scene* const one : {&scene, &expected}) {
    one->op.common.count.mean = count;
    one->op.common.reduction = reduction;
  }
  run(scene.op);
  kernels::reference::refine_select(expected.op);
  EXPECT_TRUE(scene.ids.same_bits(expected.ids));
  EXPECT_TRUE(scene.counts.same_bits(expected.counts));
  EXPECT_TRUE(scene.scratch.intact() && scene.ids.intact() && scene.counts.intact());
}

TEST(RefineSelect, ChoosesWhatTheReferenceChooses) {
  constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                           GroupReduction::sum_logits};
  std::size_t number = 0;
  for (const std::size_t group : {1UL, 3UL, 5UL}) {
    for (const std::size_t dims : {16UL, 24UL, 80UL, 128UL}) {
      for (const std::size_t bits : {1UL, 2UL}) {
        for (const PqShape pq : {no_codes, PqShape{}, PqShape{.subspaces = 4, .bits = 8}}) {
          if (!testing::takes_shape(number++)) continue;
          const std::size_t count = std::array{20UL, 0UL, 1UL, 81UL, 1000UL}[number % 5];
          expect_as_reference(make_shape(group, 2, dims, Dtype::f16), bits, pq, count,
                              reductions[number % 3]);
        }
      }
    }
  }
}

/// A rotation is a matrix: row i is what element i of a rotated vector is made of.
std::vector<float> rotation_matrix(std::size_t dims) {
  std::vector<float> matrix(dims * dims);
  for (std::size_t j = 0; j < dims; ++j) {
    std::vector<float> unit(dims);
    unit[j] = 1;
    kernels::rotate(unit.data(), dims);
    for (std::size_t i = 0; i < dims; ++i) matrix[i * dims + j] = unit[i];
  }
  return matrix;
}

TEST(Rotation, KeepsProductsWhateverTheLength) {
  for (const std::size_t dims : {2UL, 6UL, 64UL, 80UL, 96UL, 112UL, 1024UL}) {
    Rng rng(testing::seed(), {dims});
    std::vector<float> a(dims);
    std::vector<float> b(dims);
    for (float& x : a) x = testing::normal(rng);
    for (float& x : b) x = testing::normal(rng);
    const double before = std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
    kernels::rotate(a.data(), dims);
    kernels::rotate(b.data(), dims);
    EXPECT_NEAR(std::inner_product(a.begin(), a.end(), b.begin(), 0.0), before, 1e-3) << dims;
  }
}

TEST(Rotation, SpreadsOneElementOverAll) {
  for (const std::size_t dims : {64UL, 80UL, 96UL}) {
    const std::vector<float> matrix = rotation_matrix(dims);
    for (std::size_t j = 0; j < dims; ++j) {
      float largest = 0;
      for (std::size_t i = 0; i < dims; ++i) {
        largest = std::max(largest, std::abs(matrix[i * dims + j]));
      }
      EXPECT_LT(largest, 0.5F) << "element " << j << " of " << dims;
    }
  }
}

/// A token of a head, and a query.
struct Estimated {
  double exact = 0;
  double estimate = 0;
};

Estimated estimate(Scene& scene, std::span<const float> key, std::span<const float> query) {
  std::ranges::copy(key, scene.key(0, first + 7));
  std::ranges::copy(query, scene.queries.data());
  std::ranges::fill(scene.vectors(0), 0.0F);
  scene.encode();
  return {std::inner_product(key.begin(), key.end(), query.begin(), 0.0),
          kernels::reference::refine_score(scene.op, 0, first + 7)};
}

TEST(RefineEncode, EstimatesAreRightOnAverageOverRotations) {
  constexpr std::size_t dims = 32;
  constexpr std::size_t rotations = 400;
  for (const std::size_t bits : {1UL, 2UL}) {
    Scene scene(make_shape(1, 1, dims, Dtype::f32), bits, no_codes);
    Rng rng(testing::seed(), {5});
    std::vector<float> key(dims);
    std::vector<float> query(dims);
    for (float& x : key) x = 1 + testing::normal(rng);
    for (float& x : query) x = 1 + testing::normal(rng);
    double sum = 0;
    double squares = 0;
    for (std::size_t seed = 2; seed < 2 + rotations; ++seed) {
      std::vector<float> rotated_key = key;
      std::vector<float> rotated_query = query;
      kernels::rotate(rotated_key.data(), dims, seed);
      kernels::rotate(rotated_query.data(), dims, seed);
      const Estimated one = estimate(scene, rotated_key, rotated_query);
      sum += one.estimate - one.exact;
      squares += (one.estimate - one.exact) * (one.estimate - one.exact);
    }
    const double mean = sum / rotations;
    const double error = std::sqrt((squares / rotations - mean * mean) / rotations);
    EXPECT_LT(std::abs(mean), 3 * error + 0.01) << bits << " bits, " << testing::seed_text();
    EXPECT_GT(error, 0);
  }
}

TEST(RefineEncode, IsExactForARestThatIsAMultipleOfACode) {
  for (const std::size_t dims : {64UL, 80UL}) {
    for (const std::size_t bits : {1UL, 2UL}) {
      Scene scene(make_shape(1, 1, dims, Dtype::f32), bits, no_codes);
      const std::vector<float> matrix = rotation_matrix(dims);
      Rng rng(testing::seed(), {6});
      std::vector<float> key(dims);
      for (std::size_t i = 0; i < dims; ++i) {
        const float far = bits == 2 && i % 2 == 0 ? 3.0F : 1.0F;
        const float level = rng.below(2) == 0 ? -far : far;
        for (std::size_t j = 0; j < dims; ++j) key[j] += 0.25F * level * matrix[i * dims + j];
      }
      std::vector<float> query(dims);
      for (float& x : query) x = testing::normal(rng);
      const Estimated one = estimate(scene, key, query);
      EXPECT_NEAR(one.estimate, one.exact, 2e-3 * std::abs(one.exact) + 5e-3)
          << dims << " " << bits;
    }
  }
}

TEST(RefineEncode, TwoBitsErrLessThanOne) {
  const KvShape shape = make_shape(1, 1, 64, Dtype::f32);
  std::array<double, 3> errors{};
  for (const std::size_t bits : {1UL, 2UL}) {
    Scene scene(shape, bits, no_codes);
    for (std::size_t p = first; p < first + tokens; ++p) {
      double exact = 0;
      for (std::size_t i = 0; i < 64; ++i) {
        exact += double{scene.key(0, p)[i]} * double{scene.queries[i]};
      }
      const double error = kernels::reference::refine_score(scene.op, 0, p) - exact;
      errors[bits] += error * error / tokens;
    }
  }
  // A rest has a length of about 18, a query of 8: 1 bit leaves 0.57 of a product's spread, 2 0.13.
  EXPECT_LT(errors[1], 5 * 64 * 0.75);
  EXPECT_LT(errors[2], 5 * 64 * 0.2);
}

TEST(RefineEncode, ARowThatIsNoNumberSpoilsItselfAlone) {
  for (const std::size_t group : {1UL, 2UL}) {
    for (const float odd : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      const KvShape shape = make_shape(group, 2, 64, Dtype::f32);
      Scene scene(shape, 2, {});
      const std::size_t spoilt = scene.proposed[4];
      scene.key(0, spoilt)[3] = odd;
      scene.encode();
      // All but the spoilt one: they are chosen in any case.
      const std::size_t all = scene.proposed_counts[0] - 1;
      scene.op.common.count.mean = all;
      run(scene.op);
      ASSERT_EQ(scene.counts[0], all);
      for (std::size_t i = 0; i < all; ++i) EXPECT_NE(scene.ids[i], spoilt);
    }
  }
}

TEST(RefineSelect, GivesAllOfFewerCandidatesAndNothingWithoutAny) {
  const KvShape shape = make_shape(2, 2, 64, Dtype::f16);
  Scene scene(shape, 2, {});
  scene.op.common.count.mean = 244;
  scene.proposed_counts[0] = 3;
  scene.proposed_counts[1] = 0;
  run(scene.op);
  EXPECT_EQ(scene.counts[0], 3U);
  EXPECT_EQ(scene.counts[1], 0U);
  EXPECT_TRUE(std::equal(scene.proposed.begin(), scene.proposed.begin() + 3, scene.ids.data()));
}

TEST(RefineSelect, AQueryThatIsNotFiniteChoosesTheFirst) {
  Scene scene(make_shape(1, 2, 64, Dtype::f16), 2, {});
  scene.queries[7] = std::nanf("");
  run(scene.op);
  EXPECT_EQ(scene.counts[0], 20U);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_EQ(scene.ids[i], scene.proposed[i]);
}

TEST(RefineSelect, RefusesArgumentsThatDoNotFit) {
  const Scene scene(make_shape(2, 2, 64, Dtype::f16), 2, {});
  const auto refusal = [&](void (*change)(RefineSelect&)) {
    RefineSelect op = scene.op;
    change(op);
    const Status valid = validate(op);
    return valid ? std::string() : std::string(valid.error().message());
  };
  EXPECT_EQ(refusal([](RefineSelect&) {}), "");
  EXPECT_THAT(refusal([](RefineSelect& o) { o.codes.bits = 3; }), HasSubstr("codes.bits"));
  EXPECT_THAT(refusal([](RefineSelect& o) { o.codes.chunk_begin = 3; }), HasSubstr("chunk_begin"));
  EXPECT_THAT(refusal([](RefineSelect& o) { o.codes.pq.subspaces = 3; }), HasSubstr("subspaces"));
  EXPECT_THAT(refusal([](RefineSelect& o) { o.proposed = nullptr; }), HasSubstr("proposed"));
  EXPECT_THAT(refusal([](RefineSelect& o) { o.proposed_count = nullptr; }),
              HasSubstr("proposed_count"));
  EXPECT_THAT(refusal([](RefineSelect& o) { o.proposed = o.common.ids; }),
              HasSubstr("ids must not overlap proposed"));
  EXPECT_THAT(refusal([](RefineSelect& o) { o.common.query = nullptr; }), HasSubstr("query"));
  RefineSelect other = scene.op;
  other.codes.bits = 1;
  EXPECT_EQ(difference(scene.op, other), "codes");
}

}  // namespace
}  // namespace terrace
