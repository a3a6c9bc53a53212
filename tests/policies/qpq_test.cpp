#include <gmock/gmock.h>

#include <cmath>

#include "policies/recall.hpp"
#include "retrieval/query_basis.hpp"

namespace terrace {
namespace {

using policies::find_query_basis;
using policies::QueryBasis;
using testing::BlockStore;
using testing::PolicyIndex;
using testing::recall;

constexpr std::size_t dims = 16;

std::vector<float> draw(std::size_t count, std::uint64_t stream, float along_first) {
  Rng rng(testing::seed(), {stream});
  std::vector<float> values(count * dims);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = testing::normal(rng) * (i % dims < 2 ? along_first : 1);
  }
  return values;
}

std::vector<double> mapped(const float* vector, const std::vector<float>& map) {
  std::vector<double> result(dims);
  for (std::size_t i = 0; i < dims; ++i) {
    for (std::size_t k = 0; k < dims; ++k) {
      result[k] += double{vector[i]} * double{map[i * dims + k]};
    }
  }
  return result;
}

TEST(QueryBasis, KeepsEveryLogit) {
  const auto queries = draw(300, 91, 6);
  const auto keys = draw(200, 92, 1);
  for (const double shrinkage : {0.0, 0.7, 1.0}) {
    const QueryBasis basis = find_query_basis(
        {.dims = dims, .queries = queries, .keys = keys, .shrinkage = shrinkage, .subspaces = 4});
    for (std::size_t i = 0; i < 200; ++i) {
      const auto u = mapped(&queries[i * dims], basis.query_map);
      const auto y = mapped(&keys[i * dims], basis.key_map);
      double logit = 0;
      double in_basis = 0;
      for (std::size_t k = 0; k < dims; ++k) {
        logit += double{queries[i * dims + k]} * double{keys[i * dims + k]};
        in_basis += u[k] * y[k];
      }
      // Matrices are stored in f32: 6e-8 of products that add up to some tens.
      EXPECT_NEAR(in_basis, logit, 2e-4);
    }
  }
}

TEST(QueryBasis, DealsTheVarianceOutEvenlyOverSubspaces) {
  const auto keys = draw(2000, 92, 5);
  const QueryBasis basis =
      find_query_basis({.dims = dims, .keys = keys, .shrinkage = 1, .subspaces = 2});
  double variance[2] = {};
  for (std::size_t i = 0; i < 2000; ++i) {
    const auto y = mapped(&keys[i * dims], basis.key_map);
    for (std::size_t k = 0; k < dims; ++k) variance[k / (dims / 2)] += y[k] * y[k] / 2000;
  }
  EXPECT_NEAR(variance[0] / variance[1], 1, 0.2);
  EXPECT_NEAR(variance[0] + variance[1], 2 * 25 + 14, 5);  // a turn: nothing is stretched
}

TEST(QueryBasis, StretchesTheDirectionsThatQueriesLookIn) {
  const auto queries = draw(2000, 91, 10);
  const auto keys = draw(500, 92, 1);
  const QueryBasis basis =
      find_query_basis({.dims = dims, .queries = queries, .keys = keys, .shrinkage = 0.1});
  const auto length = [&](std::size_t axis) {
    std::vector<float> unit(dims);
    unit[axis] = 1;
    double square = 0;
    for (const double x : mapped(unit.data(), basis.key_map)) square += x * x;
    return std::sqrt(square);
  };
  EXPECT_GT(length(0), 3 * length(8));
}

TEST(QueryBasis, IsDefinedForQueriesOfZeroAndNoNumbers) {
  std::vector<float> queries(10 * dims);
  queries[3] = std::numeric_limits<float>::quiet_NaN();
  const auto keys = draw(50, 92, 1);
  const QueryBasis basis =
      find_query_basis({.dims = dims, .queries = queries, .keys = keys, .subspaces = 2});
  for (const float x : basis.key_map) EXPECT_TRUE(std::isfinite(x));
}

constexpr KvShape per_head{.layers = 1, .query_heads = 2, .kv_heads = 2, .head_dim = dims};

TEST(Qpq, FindsMoreThanPqcacheWhereQueriesLookInFewDirections) {
  BlockStore rows(per_head, 16, 1500);
  rows.fill_normal(93);
  double found[2];
  for (const bool aware : {false, true}) {
    const auto policy = policies::make_retrieval_policy(aware ? "qpq" : "pqcache").value();
    PolicyIndex index(*policy, rows, 4);
    index.query_window = draw(512, 94, 8);
    index.build(1500);
    found[aware ? 1 : 0] = recall(index, rows, draw(40, 95, 8), {4, 1450}, 100);
  }
  EXPECT_GT(found[1], found[0] + 0.1);
}

TEST(Drift, LowersTheRecallOfAFrozenCodebookAndARefreshRestoresIt) {
  // After 400 tokens keys move to another, narrow part of space, where queries now look.
  Rng rng(testing::seed(), {96});
  BlockStore rows(per_head, 16, 2000);
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return p < 400 ? testing::normal(rng) : (i == 0 ? 6.0F : 0.3F * testing::normal(rng));
  });
  for (const char* const name : {"pqcache", "qpq"}) {
    const auto policy = policies::make_retrieval_policy(name).value();
    PolicyIndex frozen(*policy, rows, 4);
    frozen.build(400);
    frozen.extend(2000);
    PolicyIndex fresh(*policy, rows, 4);
    fresh.build(2000);
    auto queries = draw(40, 97, 1);
    for (std::size_t at = 0; at < queries.size(); at += dims) queries[at] = 3;
    const double before = recall(frozen, rows, queries, {4, 1900}, 100);
    const double after = recall(fresh, rows, queries, {4, 1900}, 100);
    EXPECT_GT(after, before + 0.2) << name;
  }
}

}  // namespace
}  // namespace terrace
