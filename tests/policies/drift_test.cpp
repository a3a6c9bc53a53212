// Outputs with a change of topic: the recall of indexes on keys unlike their training keys, and the
// gain and the time of building them again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policies/policy_index.hpp"
#include "policies/selecting_policies.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::PolicyIndex;

constexpr KvShape shape{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
constexpr std::size_t sinks = 4;
constexpr std::size_t turn = 1004;
constexpr std::size_t length = 2004;
constexpr std::size_t window = 1940;
constexpr std::size_t selected = 100;

/// Keys differ in the first half of their dimensions before the turn, in the second half after it.
void fill_with_a_turn(BlockStore& rows) {
  Rng rng(testing::seed(), {201});
  rows.fill([&](std::size_t position, std::size_t, std::size_t i) {
    const bool first_half = i % shape.head_dim < shape.head_dim / 2;
    return (first_half == (position < turn) ? 2.0F : 0.05F) * testing::normal(rng);
  });
}

std::vector<float> query_of(std::uint64_t stream) {
  Rng rng(testing::seed(), {stream});
  std::vector<float> query(shape.query_heads * shape.head_dim);
  for (std::size_t i = 0; i < query.size(); ++i) {
    query[i] = i % shape.head_dim < shape.head_dim / 2 ? 0.0F : testing::normal(rng);
  }
  return query;
}

/// The `selected` candidates of a KV head that weigh most.
std::vector<std::uint32_t> truth(const BlockStore& rows, const std::vector<float>& query,
                                 std::size_t head) {
  std::vector<double> weights(window - sinks);
  for (std::size_t g = 0; g < shape.group(); ++g) {
    const float* const q = &query[(head * shape.group() + g) * shape.head_dim];
    std::vector<double> one(weights.size());
    for (std::size_t t = 0; t < one.size(); ++t) {
      double dot = 0;
      for (std::size_t i = 0; i < shape.head_dim; ++i) {
        dot += double{q[i]} * double{rows.key(head, sinks + t, i)};
      }
      one[t] = std::exp(dot / std::sqrt(double{shape.head_dim}));
    }
    const double sum = std::accumulate(one.begin(), one.end(), 0.0);
    for (std::size_t t = 0; t < one.size(); ++t) weights[t] += one[t] / sum;
  }
  std::vector<std::uint32_t> order(weights.size());
  std::iota(order.begin(), order.end(), static_cast<std::uint32_t>(sinks));
  std::ranges::sort(order, std::greater<>(), [&](std::uint32_t p) { return weights[p - sinks]; });
  order.resize(selected);
  std::ranges::sort(order);
  return order;
}

double recall(PolicyIndex& index, const BlockStore& rows) {
  double found = 0;
  constexpr std::uint64_t queries = 8;
  for (std::uint64_t stream = 0; stream < queries; ++stream) {
    const std::vector<float> query = query_of(210 + stream);
    const auto lists = index.select(query, window, selected);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      std::vector<std::uint32_t> both;
      std::ranges::set_intersection(lists[head], truth(rows, query, head),
                                    std::back_inserter(both));
      found += static_cast<double>(both.size());
    }
  }
  return found / double(queries * shape.kv_heads * selected);
}

/// Recall of an index trained before the turn, and of one built again after it.
struct Recalls {
  double grown = 0;
  double anew = 0;
};

Recalls recalls_of(const char* name) {
  BlockStore rows(shape, 16, length);
  fill_with_a_turn(rows);
  const auto policy = policies::make_retrieval_policy(name).value();
  PolicyIndex grown(*policy, rows, sinks);
  grown.build(turn);
  for (std::size_t end = turn; end < length;) {
    end = std::min(end + policy->traits().batch_tokens_max, length);
    grown.extend(end);
  }
  PolicyIndex anew(*policy, rows, sinks);
  anew.build(length);
  return {recall(grown, rows), recall(anew, rows)};
}

TEST(Drift, CodesOfAnotherTopicMissWhatARefreshFinds) {
  for (const char* const policy : {"pqcache", "qpq"}) {
    const Recalls recalls = recalls_of(policy);
    EXPECT_GT(recalls.anew, recalls.grown + 0.1) << policy << " " << testing::seed_text();
  }
}

TEST(Drift, ClustersOfTheirOwnBatchNeedNoRefresh) {
  for (const char* const policy : {"clusterkv", "wave"}) {
    const Recalls recalls = recalls_of(policy);
    EXPECT_GT(recalls.grown, recalls.anew - 0.15) << policy << " " << testing::seed_text();
  }
}

/// A millisecond passes whenever somebody looks.

}  // namespace
}  // namespace terrace
