// SmartKV with gates, from the keys of a sequence to the tokens that stay.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "engine/random_floats.hpp"
#include "made_up_gates.hpp"
#include "terrace/policies/retention.hpp"

namespace terrace {
namespace {

using policies::GateLists;
using policies::make_retention_policy;
using policies::RetentionOptions;

constexpr KvShape shape{.layers = 2, .query_heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr LayerId layer{1};
constexpr std::size_t sinks = 3;
constexpr std::size_t window = 12;
constexpr std::size_t keep = 20;

/// The keys [tokens, kv_heads, head_dim] of a sequence: few different ones, so that ratings tie.
std::vector<float> keys_of(std::size_t tokens, std::uint64_t seed) {
  constexpr std::size_t different = 23;
  const std::size_t numbers = shape.kv_heads * shape.head_dim;
  const auto some = random_floats(different * numbers, seed, 2);
  Rng rng(seed);
  std::vector<float> keys;
  for (std::size_t token = 0; token < tokens; ++token) {
    const std::size_t which = rng.below(different);
    keys.insert(keys.end(), some.begin() + static_cast<std::ptrdiff_t>(which * numbers),
                some.begin() + static_cast<std::ptrdiff_t>((which + 1) * numbers));
  }
  return keys;
}

std::vector<float> rate(const RetentionPolicy& policy, std::span<const float> keys) {
  std::vector<float> ratings(keys.size() / shape.head_dim);
  Serial serial;
  const Status rated =
      policy.rate({.shape = shape, .layer = layer, .keys = keys, .ratings = ratings}, serial);
  EXPECT_TRUE(rated.has_value()) << rated.error().message();
  return ratings;
}

using Positions = std::vector<std::uint32_t>;

/// Lets the policy choose among those positions of each KV head.
std::vector<Positions> retain(const RetentionPolicy& policy, std::span<const float> ratings,
                              std::size_t length, const std::vector<Positions>& shown) {
  const std::byte row{};
  std::vector<std::vector<const std::byte*>> rows;
  std::vector<Positions> degrees;
  std::vector<Candidates> heads;
  for (const Positions& positions : shown) {
    rows.emplace_back(positions.size(), &row);
    degrees.emplace_back(positions.size(), 1U);
  }
  for (std::size_t head = 0; head < shown.size(); ++head) {
    heads.push_back(
        {.rows = rows[head], .positions = shown[head], .degrees = degrees[head], .keep = keep});
  }
  const auto maps = policy.retain(
      {.shape = shape, .layer = layer, .heads = heads, .scores = ratings, .length = length});
  EXPECT_TRUE(maps.has_value()) << maps.error().message();
  std::vector<Positions> kept(shown.size());
  for (std::size_t head = 0; head < shown.size(); ++head) {
    for (std::size_t i = 0; i < shown[head].size(); ++i) {
      if ((*maps)[head].target[i] != EntryMap::dropped) kept[head].push_back(shown[head][i]);
    }
  }
  return kept;
}

/// The `keep` positions of the greatest rating among [sinks, end), of equal ones the oldest.
template <typename Rate>
Positions best_of_all(std::size_t end, Rate rate) {
  Positions order(end - sinks);
  std::iota(order.begin(), order.end(), static_cast<std::uint32_t>(sinks));
  std::ranges::stable_sort(order, std::greater{}, rate);
  order.resize(std::min(order.size(), keep));
  std::ranges::sort(order);
  return order;
}

/// Ratings [kv_heads, length] of the first tokens of [kv_heads, all].
std::vector<float> first_of(std::span<const float> ratings, std::size_t all, std::size_t length) {
  std::vector<float> first;
  for (std::size_t head = 0; head < shape.kv_heads; ++head) {
    const auto row = ratings.subspan(head * all, length);
    first.insert(first.end(), row.begin(), row.end());
  }
  return first;
}

/// Flushes a window at a time and compares what stays with the best of all that left it.
template <typename Expected>
void flush_all(const RetentionPolicy& policy, std::size_t tokens, Expected expected) {
  const auto keys = keys_of(tokens, 3);
  const auto ratings = rate(policy, keys);
  std::vector<Positions> middle(shape.kv_heads);
  std::uint32_t left = sinks;  // the first token that is in the window
  for (std::size_t length = sinks + 2 * window; length <= tokens; length += window) {
    for (; left < length - window; ++left) {
      for (Positions& positions : middle) positions.push_back(left);
    }
    middle = retain(policy, first_of(ratings, tokens, length), length, middle);
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const auto wanted = best_of_all(
          left, [&](std::size_t position) { return expected(ratings, head, position); });
      ASSERT_EQ(middle[head], wanted) << "length " << length << " head " << head;
    }
  }
}

TEST(SmartKvWithGates, KeepsTheBestOfAllThatLeftTheWindow) {
  const auto policy =
      make_retention_policy("smartkv", {.ageing = false, .gates = made_up_gates(shape)}).value();
  const std::size_t tokens = 200;
  flush_all(*policy, tokens, [&](const auto& ratings, std::size_t head, std::size_t position) {
    return ratings[head * tokens + position];
  });
}

TEST(SmartKvWithGates, KeepsTheSameForAllHeadsByTheSumOfTheirRatings) {
  const auto policy =
      make_retention_policy(
          "smartkv", {.ageing = false, .gates = made_up_gates(shape), .gate_lists = GateLists::sum})
          .value();
  const std::size_t tokens = 200;
  flush_all(*policy, tokens, [&](const auto& ratings, std::size_t, std::size_t position) {
    return ratings[position] + ratings[tokens + position];
  });
}

TEST(SmartKvWithGates, AgesTheLifespanOfTheMeanWhereHeadsShareAList) {
  const auto policy = make_retention_policy(
                          "smartkv", {.gates = made_up_gates(shape), .gate_lists = GateLists::sum})
                          .value();
  const std::size_t length = 80;
  constexpr std::uint32_t older = 13;
  std::vector<Positions> shown(shape.kv_heads, Positions(keep + 1));
  for (Positions& positions : shown) {
    std::iota(positions.begin(), positions.end(), 40U);
    positions[0] = older;
    positions[1] = older + 1;
  }
  // The mean says 8 and 7.5 tokens, which leave the older one less. The sum would say 64 and 56.
  std::vector<float> ratings(shape.kv_heads * length);
  ratings[older] = 3;
  ratings[older + 1] = 2.9F;
  for (const Positions& kept : retain(*policy, ratings, length, shown)) {
    EXPECT_EQ(kept.front(), older + 1);
  }
}

TEST(RetentionRatings, AreRefusedWhereSizesDoNotFit) {
  Serial serial;
  std::vector<float> keys(4 * shape.kv_heads * shape.head_dim);
  std::vector<float> ratings(4 * shape.kv_heads);
  const RateRequest request{.shape = shape, .layer = layer, .keys = keys, .ratings = ratings};
  const auto code = [&](const char* name, const RateRequest& asked) {
    const RetentionOptions options{.gates = made_up_gates(shape)};
    const Status status = make_retention_policy(name, options).value()->rate(asked, serial);
    return status ? std::optional<Errc>() : status.error().code;
  };
  EXPECT_EQ(code("smartkv", request), std::nullopt);
  EXPECT_EQ(code("h2o", request), Errc::unsupported);
  RateRequest odd = request;
  odd.keys = odd.keys.first(keys.size() - 1);
  EXPECT_EQ(code("smartkv", odd), Errc::invalid_argument);
  odd = request;
  odd.ratings = odd.ratings.first(ratings.size() - 1);
  EXPECT_EQ(code("smartkv", odd), Errc::invalid_argument);
  odd = request;
  odd.layer = LayerId{2};
  EXPECT_EQ(code("smartkv", odd), Errc::invalid_argument);
  odd = request;
  odd.shape.layers = 3;  // another model's
  EXPECT_EQ(code("smartkv", odd), Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace
