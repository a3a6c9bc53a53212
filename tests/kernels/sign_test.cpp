// Selections by the means of groups and the signs of rests against the reference.
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <limits>

#include "kernels/kernel_run.hpp"
#include "kernels/selected.hpp"
#include "kernels/selection_check.hpp"
#include "kernels/sign_index.hpp"
#include "terrace/core/dtype.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/rotation.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::is_top;
using testing::make_shape;
using testing::run;
using testing::Selected;
using testing::selection_tolerance;
using testing::SignIndex;
using testing::takes_shape;

constexpr GroupReduction reductions[] = {GroupReduction::sum_softmax, GroupReduction::max_softmax,
                                         GroupReduction::sum_logits};
constexpr TokenRange candidates{9, 815};

/// A page has 64 tokens or 128, and few groups or many.
SignIndex make_index(const BlockStore& store, std::size_t number) {
  const std::size_t groups = std::array{4UL, 16UL, 3UL, 40UL}[number % 4];
  return {store, groups, number % 3 == 0 ? 128UL : 64UL, 256, {4, 820}};
}

void expect_top(const KvShape& shape, std::size_t number, std::size_t count,
                GroupReduction reduction) {
  SCOPED_TRACE(testing::to_text(shape) + ", index " + std::to_string(number) + ", count " +
               std::to_string(count) + ", " + testing::seed_text());
  BlockStore store(shape, 32, 820);
  store.fill_normal(8);
  const SignIndex index = make_index(store, number);
  Selected selected(shape, candidates, count);
  const SignSelect op{
      .common = selected.common(reduction), .signs = index.signs(), .index = index.view()};
  run(op);
  testing::expect_top(op, kernels::reference::sign_weights);
  EXPECT_TRUE(selected.intact());
}

TEST(SignSelect, ChoosesTheLargestWeightsForEveryShape) {
  std::size_t number = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {2U, 6U, 64U, 80U, 130U}) {
      for (const std::size_t group : {1U, 2U, 3U, 4U, 7U, 8U}) {
        for (const std::size_t count : {0U, 1U, 20U, 1000U}) {
          if (!takes_shape(number++)) continue;
          expect_top(make_shape(group, 2, head_dim, dtype), number, count, reductions[group % 3]);
        }
      }
    }
  }
}

TEST(SignSelect, FindsAWrongCandidate) {
  const KvShape shape = make_shape(4, 1, 64, Dtype::f16);
  BlockStore store(shape, 32, 820);
  store.fill_normal(8);
  const SignIndex index = make_index(store, 1);
  Selected selected(shape, candidates, 20);
  const SignSelect op{.common = selected.common({}), .signs = index.signs(), .index = index.view()};
  run(op);
  std::vector<double> weights(candidates.size());
  kernels::reference::sign_weights(op, 0, weights.data());
  std::vector<std::uint32_t> ids(selected.ids(0).begin(), selected.ids(0).end());
  ASSERT_TRUE(is_top(ids, candidates.begin, 20, weights, selection_tolerance));
  ids.back() = ids.back() == 814 ? 813 : 814;
  EXPECT_FALSE(is_top(ids, candidates.begin, 20, weights, selection_tolerance))
      << testing::seed_text();
}

TEST(SignSelect, ChoosesTheFirstForAQueryThatIsNotFinite) {
  const KvShape shape = make_shape(1, 1, 64, Dtype::f16);
  BlockStore store(shape, 32, 820);
  store.fill_normal(8);
  const SignIndex index = make_index(store, 1);
  for (const float odd : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    Selected selected(shape, candidates, 3);
    selected.query_[17] = odd;
    run(SignSelect{.common = selected.common({}), .signs = index.signs(), .index = index.view()});
    EXPECT_THAT(selected.ids(0), ::testing::ElementsAre(9, 10, 11));
  }
}

/// The score of each candidate by exact products, and by the index.
struct Scores {
  std::vector<double> exact;
  std::vector<double> estimated;
};

Scores scores_of(const BlockStore& store, const SignSelect& op) {
  const KvShape& shape = op.common.shape;
  Scores scores;
  for (std::size_t p = op.common.candidates.begin; p < op.common.candidates.end; ++p) {
    double product = 0;
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      product += double{op.common.query[i]} * double{load_f32(store.row(0, p), shape.dtype, i)};
    }
    scores.exact.push_back(product);
    scores.estimated.push_back(kernels::reference::sign_score(op, 0, p));
  }
  return scores;
}

// One bit of each of d channels leaves an error with the square (pi / 2 - 1) / d of |q|^2 |rest|^2.
TEST(SignSelect, EstimatesScoresWithoutBias) {
  const KvShape shape = make_shape(1, 1, 64, Dtype::f32);
  BlockStore store(shape, 32, 820);
  store.fill_normal(8);
  const SignIndex index = make_index(store, 3);
  Selected selected(shape, candidates, 20);
  const SignSelect op{.common = selected.common({}), .signs = index.signs(), .index = index.view()};
  const Scores scores = scores_of(store, op);
  const auto count = static_cast<double>(candidates.size());
  double sum = 0;
  double squares = 0;
  double exact = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double error = scores.estimated[i] - scores.exact[i];
    sum += error;
    squares += error * error;
    exact += scores.exact[i] * scores.exact[i];
  }
  EXPECT_LT(std::abs(sum / count), 4 * std::sqrt(squares / count) / std::sqrt(count))
      << testing::seed_text();
  EXPECT_LT(squares, 0.7 * exact) << testing::seed_text();
}

TEST(SignEncode, ANumberThatIsNotFiniteSpoilsItsTokenAlone) {
  const KvShape shape = make_shape(1, 1, 64, Dtype::f32);
  BlockStore store(shape, 32, 820);
  store.fill_normal(8);
  const SignIndex before = make_index(store, 1);
  SignIndex index = make_index(store, 1);
  store_f32(store.row(0, 4 + 130), shape.dtype, 7, std::numeric_limits<float>::quiet_NaN());
  index.encode(store, 0, {4 + 128, 4 + 136}, true);
  Selected selected(shape, candidates, 806);
  const SignSelect op{.common = selected.common({}), .signs = index.signs(), .index = index.view()};
  SignSelect clean = op;
  clean.index = before.view();
  for (std::size_t p = candidates.begin; p < candidates.end; ++p) {
    const double score = kernels::reference::sign_score(op, 0, p);
    if (p == 134) {
      EXPECT_TRUE(std::isnan(score));
    } else {
      EXPECT_EQ(score, kernels::reference::sign_score(clean, 0, p));
    }
  }
}

// A rest that is a multiple of signs, once rotated, is coded exactly.
TEST(SignEncode, IsExactForRestsOfOneSize) {
  const KvShape shape = make_shape(1, 1, 64, Dtype::f32);
  BlockStore store(shape, 32, 68);
  store.fill([](std::size_t, std::size_t, std::size_t) { return 0.0F; });
  std::vector<float> key(64, 0.25F);
  for (std::size_t i = 0; i < key.size(); i += 3) key[i] = -0.25F;
  // The rotation is its own inverse but for the signs that it begins with.
  std::vector<float> turned = key;
  for (std::size_t half = 1; half < 64; half *= 2) {
    for (std::size_t i = 0; i < 64; ++i) {
      if ((i & half) != 0) continue;
      const float a = turned[i];
      const float b = turned[i + half];
      turned[i] = a + b;
      turned[i + half] = a - b;
    }
  }
  for (std::size_t i = 0; i < 64; ++i) {
    const float sign = kernels::rotation_sign(0, i, kernels::rotation_seed);
    store_f32(store.row(0, 10), shape.dtype, i, turned[i] / 8 * sign);
  }
  SignIndex index(store, 4, 64, 64, {4, 68});
  index.encode(store, 0, {4, 68}, false);
  Selected selected(shape, {10, 11}, 1);
  const SignSelect op{.common = selected.common({}), .signs = index.signs(), .index = index.view()};
  const Scores scores = scores_of(store, op);
  const double length = 0.25 * 8;
  double query = 0;
  for (const float x : selected.query_) query += double{x} * double{x};
  EXPECT_NEAR(scores.estimated[0], scores.exact[0], 0.02 * length * std::sqrt(query));
}

}  // namespace
}  // namespace terrace
