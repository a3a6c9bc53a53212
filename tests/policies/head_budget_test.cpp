#include "terrace/policies/head_budget.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "kernels/block_store.hpp"
#include "terrace/offload/parallel.hpp"

namespace terrace::policies {
namespace {

using testing::BlockStore;
using testing::make_shape;

constexpr std::size_t length = 400;
constexpr std::size_t sinks = 4;
constexpr std::size_t window = 30;
constexpr std::size_t selected = 40;

/// A layer whose first KV head looks at a few rows each time, and whose others look at all alike.
struct Layer {
  explicit Layer(const KvShape& of)
      : shape(of), rows(of, 32, length), queries(20 * of.query_heads * of.head_dim) {
    Rng rng(testing::seed(), {91});
    rows.fill([&](std::size_t position, std::size_t head, std::size_t i) {
      const bool sharp = head == 0 && position % 50 == 10;
      return (sharp && i == 0 ? 20.0F : 0.0F) + 0.1F * testing::normal(rng);
    });
    for (std::size_t i = 0; i < queries.size(); ++i) {
      queries[i] = (i % shape.head_dim == 0 ? 3.0F : 0.0F) + 0.1F * testing::normal(rng);
    }
  }

  [[nodiscard]] HeadDeal deal() const {
    return {.shape = shape,
            .rows = rows.table(),
            .length = length,
            .sinks = sinks,
            .window = window,
            .selected = selected,
            .queries = queries};
  }

  KvShape shape;
  BlockStore rows;
  std::vector<float> queries;
};

std::vector<std::size_t> rows_dealt(const HeadDeal& deal) {
  Serial alone;
  const std::vector<std::uint32_t> shares = deal_heads(deal, alone).value();
  std::vector<std::size_t> rows;
  for (std::size_t head = 0; head < shares.size(); ++head) {
    rows.push_back(rows_of_head({.mean = deal.selected, .shares = shares.data()}, head));
  }
  return rows;
}

TEST(DealHeads, GivesMoreToHeadsThatLookAtMoreRows) {
  const Layer layer(make_shape(2, 3, 16, Dtype::f16));
  const std::vector<std::size_t> rows = rows_dealt(layer.deal());
  EXPECT_EQ(rows[0], selected / head_rows_least);
  EXPECT_GT(rows[1], selected);
  EXPECT_GT(rows[2], selected);
  EXPECT_EQ(std::reduce(rows.begin(), rows.end()), 3 * selected);
}

TEST(DealHeads, GivesNoHeadMoreThanTheMost) {
  const Layer layer(make_shape(1, 2, 16, Dtype::f32));
  for (HeadDeal deal = layer.deal(); deal.selected < 200; ++deal.selected) {
    const std::vector<std::size_t> rows = rows_dealt(deal);
    EXPECT_EQ(rows[0] + rows[1], 2 * deal.selected);
    EXPECT_LE(rows[1], head_rows_most * deal.selected);
    EXPECT_GE(rows[0], deal.selected / head_rows_least);
  }
}

TEST(DealHeads, DealsAlikeWhatIsAlike) {
  const Layer layer(make_shape(2, 3, 16, Dtype::f16));
  HeadDeal deal = layer.deal();
  deal.queries = {};
  EXPECT_EQ(rows_dealt(deal), std::vector(3, selected)) << "no queries";
  deal = layer.deal();
  deal.sinks = length - window;
  EXPECT_EQ(rows_dealt(deal), std::vector(3, selected)) << "no candidates";
  deal = layer.deal();
  deal.selected = length;
  EXPECT_EQ(rows_dealt(deal), std::vector(3, length)) << "room for all";
}

TEST(DealHeads, IsTheSameForAnyNumberOfThreads) {
  const Layer layer(make_shape(2, 5, 16, Dtype::bf16));
  Serial alone;
  const auto threads = offload::make_parallel({.threads = 3}).value();
  for (const ListScope lists : {ListScope::kv_head, ListScope::query_head}) {
    HeadDeal deal = layer.deal();
    deal.lists = lists;
    EXPECT_EQ(deal_heads(deal, alone).value(), deal_heads(deal, *threads).value());
  }
}

TEST(DealHeads, RefusesRowsThatAreNotThere) {
  const Layer layer(make_shape(2, 2, 16, Dtype::f16));
  Serial alone;
  HeadDeal deal = layer.deal();
  deal.rows.blocks = nullptr;
  EXPECT_EQ(deal_heads(deal, alone).error().code, Errc::invalid_argument);
  deal = layer.deal();
  deal.shape.kv_heads = 0;
  EXPECT_EQ(deal_heads(deal, alone).error().code, Errc::invalid_argument);
}

TEST(DealHeads, TakesRowsThatAreNotFiniteForNothing) {
  const Layer layer(make_shape(2, 2, 16, Dtype::f32));
  Layer spoilt = layer;
  BlockStore& rows = spoilt.rows;
  for (const std::size_t position : {17UL, 200UL}) {
    store_f32(rows.row(0, position), Dtype::f32, 3, std::numeric_limits<float>::quiet_NaN());
    store_f32(rows.row(1, position), Dtype::f32, 0, std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(rows_dealt(spoilt.deal()), rows_dealt(layer.deal()));
  std::ranges::fill(spoilt.queries, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(rows_dealt(spoilt.deal()), std::vector(2, selected));
}

TEST(DealHeads, CoversMoreWeightThanAnEvenDeal) {
  // One query head a KV head, no sinks nor window: the weight covered is that of the largest rows.
  const KvShape shape = make_shape(1, 4, 16, Dtype::f32);
  BlockStore rows(shape, 32, length);
  rows.fill_normal(92);
  Rng rng(testing::seed(), {93});
  std::vector<float> query(shape.query_heads * shape.head_dim);
  // Heads of falling temperature.
  for (std::size_t i = 0; i < query.size(); ++i) {
    const std::size_t head = i / shape.head_dim;
    query[i] = static_cast<float>(head) * testing::normal(rng);
  }
  const HeadDeal deal{.shape = shape,
                      .rows = rows.table(),
                      .length = length,
                      .selected = selected,
                      .queries = query};
  const auto covered = [&](const std::vector<std::size_t>& counts) {
    double sum = 0;
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<double> weights;
      for (std::size_t p = 0; p + 1 < length; ++p) {
        double dot = 0;
        for (std::size_t i = 0; i < shape.head_dim; ++i) {
          dot += double{query[head * shape.head_dim + i]} * double{rows.key(head, p, i)};
        }
        weights.push_back(std::exp(dot / 4));
      }
      const double all = std::reduce(weights.begin(), weights.end());
      std::ranges::sort(weights, std::greater<>());
      sum += std::reduce(weights.begin(),
                         weights.begin() + static_cast<std::ptrdiff_t>(counts[head])) /
             all;
    }
    return sum;
  };
  const std::vector<std::size_t> dealt = rows_dealt(deal);
  EXPECT_GT(covered(dealt), 1.01 * covered(std::vector(4, selected)));
  // No row given to another head would cover more, but for the last position, which the sum above
  // leaves out of the denominator.
  for (std::size_t from = 0; from < 4; ++from) {
    for (std::size_t to = 0; to < 4; ++to) {
      std::vector<std::size_t> other = dealt;
      if (from == to || other[from] <= selected / head_rows_least ||
          other[to] >= head_rows_most * selected) {
        continue;
      }
      --other[from];
      ++other[to];
      EXPECT_LE(covered(other), covered(dealt) + 1e-3);
    }
  }
}

}  // namespace
}  // namespace terrace::policies
