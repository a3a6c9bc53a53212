// The promises of product quantisation: its logits, and when they are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "kernels/pq_index.hpp"
#include "kernels/selected.hpp"
#include "terrace/kernels/kmeans.hpp"
#include "terrace/kernels/pq_encode.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::PqIndex;

constexpr KvShape shape{
    .layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 64, .dtype = Dtype::f16};
constexpr PqShape pq{.subspaces = 2, .bits = 6};

/// Clusters the keys of a store and codes them.
void build(const BlockStore& store, PqIndex& index) {
  Serial threads;
  for (std::size_t j = 0; j < pq.subspaces; ++j) {
    std::vector<float> rows(store.tokens() * 32);
    std::vector<std::uint32_t> labels(store.tokens());
    ASSERT_TRUE(kernels::host::read_keys({.shape = shape,
                                          .rows = store.table(),
                                          .tokens = {0, store.tokens()},
                                          .first_dim = j * 32,
                                          .dims = 32},
                                         rows.data()));
    const auto report = kernels::host::kmeans(
        {.rows = rows.data(), .row_count = store.tokens(), .dims = 32},
        {.clusters = 64, .iterations = 8, .seed = testing::seed()},
        {.centroids = index.centroid(0, j, 0), .labels = labels.data()}, threads);
    ASSERT_TRUE(report.has_value());
  }
  ASSERT_TRUE(kernels::host::pq_encode({.shape = shape,
                                        .pq = pq,
                                        .rows = store.table(),
                                        .tokens = {0, store.tokens()},
                                        .index = index.view()},
                                       threads));
}

class PqLogits : public ::testing::Test {
 protected:
  PqLogits() : query_(64) {
    Rng rng(testing::seed(), {31});
    for (float& x : query_) x = testing::normal(rng);
  }

  /// Selects `count` of the store's tokens and returns their ids; weights_ holds the logits.
  std::vector<std::uint32_t> select(PqIndex& index, std::size_t tokens, std::size_t count) {
    std::vector<std::uint32_t> ids(count);
    std::uint32_t id_count = 0;
    scratch_.assign(selection_scratch_floats(shape, tokens), 0);
    const PqSelect op{.common = {.shape = shape,
                                 .query = query_.data(),
                                 .candidates = {0, tokens},
                                 .count = {.mean = count},
                                 .ids = ids.data(),
                                 .id_count = &id_count,
                                 .id_stride = count,
                                 .scratch = scratch_.data()},
                      .pq = pq,
                      .index = index.view()};
    Serial threads;
    kernels::host::pq_select(op, threads);
    weights_.resize(tokens);
    kernels::reference::pq_weights(op, 0, weights_.data());
    ids.resize(id_count);
    return ids;
  }

  /// Returns query . (key, or what its codes stand for) / sqrt(d) of one token, in double.
  double logit(const BlockStore& store, std::size_t position) const {
    double sum = 0;
    for (std::size_t i = 0; i < 64; ++i) {
      sum += double{query_[i]} * double{store.key(0, position, i)};
    }
    return sum / 8;
  }

  std::vector<float> query_;
  std::vector<float> scratch_;  // of a group of one query head: starts with its logits
  std::vector<double> weights_;
};

TEST_F(PqLogits, AreTheDotProductsWithTheCentroidsOfTheCodes) {
  BlockStore store(shape, 32, 500);
  store.fill_normal(9);
  PqIndex index(shape, pq, 128, 500, 0);
  build(store, index);
  select(index, 500, 50);
  for (std::size_t p = 0; p < 500; ++p) {
    // 64 products of size 1 in f32, divided by 8.
    EXPECT_NEAR(double{scratch_[p]}, weights_[p], 1e-5) << testing::seed_text();
  }
}

TEST_F(PqLogits, AreExactWithNoMoreDistinctKeysThanCentroids) {
  BlockStore store(shape, 32, 700);
  Rng rng(testing::seed(), {32});
  std::vector<float> distinct(64 * 64);
  for (float& x : distinct) x = testing::normal(rng);
  store.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return distinct[p * 7 % 64 * 64 + i % 64];
  });
  PqIndex index(shape, pq, 128, 700, 0);
  build(store, index);
  const std::vector<std::uint32_t> ids = select(index, 700, 100);
  std::vector<double> exact(700);
  for (std::size_t p = 0; p < 700; ++p) {
    exact[p] = logit(store, p);
    EXPECT_NEAR(double{scratch_[p]}, exact[p], 1e-5) << testing::seed_text();
  }
  std::vector<std::uint32_t> expected(100);
  kernels::reference::select_topk(exact.data(), 700, 100, expected.data());
  EXPECT_EQ(ids, expected) << testing::seed_text();
}

TEST_F(PqLogits, AreWrongByNoMoreThanTheQuantisationErrorAllows) {
  BlockStore store(shape, 32, 400);
  store.fill_normal(10);
  PqIndex index(shape, pq, 128, 400, 0);
  build(store, index);
  select(index, 400, 10);
  for (std::size_t p = 0; p < 400; ++p) {
    double bound = 0;
    for (std::size_t j = 0; j < 2; ++j) {
      const float* c = index.centroid(0, j, std::to_integer<std::size_t>(index.code(0, j, p)));
      double query_square = 0;
      double error_square = 0;
      for (std::size_t i = 0; i < 32; ++i) {
        const double error = double{store.key(0, p, j * 32 + i)} - double{c[i]};
        query_square += double{query_[j * 32 + i]} * double{query_[j * 32 + i]};
        error_square += error * error;
      }
      bound += std::sqrt(query_square * error_square) / 8;
    }
    EXPECT_LE(std::abs(double{scratch_[p]} - logit(store, p)), bound + 1e-5);
  }
}

/// The share of the chosen candidates that the order of exact weights would not have chosen.
double share_not_in(std::span<const std::uint32_t> ids, const std::vector<std::uint32_t>& exact) {
  std::vector<std::uint32_t> others;
  std::ranges::set_difference(ids, exact, std::back_inserter(others));
  return static_cast<double>(others.size()) / static_cast<double>(ids.size());
}

// Nothing on the way is coarser than f32 (decision 0059).
TEST(PqSelect, DiffersFromTheOrderOfExactWeightsInLessThanAThousandth) {
  constexpr std::size_t candidates = 32'768;
  for (const std::size_t subspaces : {1U, 2U, 4U, 8U}) {
    for (const std::size_t bits : {4U, 5U, 6U, 7U, 8U}) {
      const KvShape four_heads = testing::make_shape(4, 1, 128, Dtype::f16);
      const PqShape codes{.subspaces = subspaces, .bits = bits};
      PqIndex index(four_heads, codes, 4096, candidates, 0);
      index.fill_codes();
      std::vector<double> weights(candidates);
      for (const std::size_t count : {std::size_t{1024}, candidates / 10}) {
        testing::Selected selected(four_heads, {0, candidates}, count);
        const PqSelect op{.common = selected.common(GroupReduction::sum_softmax),
                          .pq = codes,
                          .index = index.view()};
        Serial threads;
        kernels::host::pq_select(op, threads);
        kernels::reference::pq_weights(op, 0, weights.data());
        std::vector<std::uint32_t> exact(count);
        kernels::reference::select_topk(weights.data(), candidates, count, exact.data());
        ASSERT_EQ(selected.ids(0).size(), count);
        EXPECT_LT(share_not_in(selected.ids(0), exact), 0.001)
            << "m " << subspaces << ", b " << bits << ", count " << count << ", "
            << testing::seed_text();
      }
    }
  }
}

}  // namespace
}  // namespace terrace
