// Rules that every policy with an index must keep, for any keys: lists of distinct candidates in
// rising order, as long as asked for, and an index that grows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "policies/policy_index.hpp"
#include "policies/selecting_policies.hpp"
#include "terrace/kernels/estimate.hpp"

namespace terrace {
namespace {

using testing::BlockStore;
using testing::PolicyIndex;

constexpr std::size_t sinks = 4;

class EachIndexedPolicy : public ::testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] std::vector<float> query() const { return testing::normal_query(shape_, 61); }

  /// Checks lists of at most `count` of [sinks, window).
  void expect_lists(const std::vector<std::vector<std::uint32_t>>& lists, std::size_t window,
                    std::size_t count) const {
    const std::size_t most = std::min(count, window - sinks);
    for (const auto& list : lists) {
      EXPECT_LE(list.size(), most);
      // If clusters are estimated, whole clusters need not fill the budget to the last row.
      const RetrievalTraits& traits = policy_->traits();
      const bool fills = !traits.gives_pseudo_entries || traits.estimates_rest;
      EXPECT_GE(list.size(), fills ? most : 0);
      EXPECT_TRUE(std::ranges::adjacent_find(list, std::greater_equal<>()) == list.end());
      for (const std::uint32_t id : list) EXPECT_TRUE(id >= sinks && id < window) << id;
    }
  }

  /// Selects, and checks what is selected and what stands for the rest.
  void expect_selection(PolicyIndex& index, std::size_t window, std::size_t count) const {
    const auto lists = index.select(query(), window, count);
    expect_lists(lists, window, count);
    if (!policy_->traits().gives_pseudo_entries) return;
    const std::size_t stride = policy_->pseudo_capacity(index.indexed().size());
    for (std::size_t list = 0; list < lists.size(); ++list) {
      double covered = static_cast<double>(lists[list].size());
      for (std::size_t i = 0; i < index.pseudo_counts[list]; ++i) {
        const std::byte* const row = index.pseudo_rows[list * stride + i];
        for (std::size_t k = 0; k < 2 * shape_.head_dim; ++k) {
          EXPECT_TRUE(std::isfinite(load_f32(row, shape_.dtype, k)));
        }
        covered += std::exp(double{index.pseudo_bias[list * stride + i]});
      }
      const std::size_t left_out =
          policy_->traits().estimates_rest ? in_no_group(index, lists[list], list, window) : 0;
      // Every other candidate is attended, or a member of what stands for it.
      EXPECT_NEAR(covered, static_cast<double>(window - sinks - left_out), 1e-2);
    }
  }

  /// Candidates that are neither selected nor of a group that can be estimated.
  std::size_t in_no_group(const PolicyIndex& index, const std::vector<std::uint32_t>& selected,
                          std::size_t head, std::size_t window) const {
    constexpr std::size_t page_tokens = 64;
    const std::size_t whole = sinks + (window - sinks) / page_tokens * page_tokens;
    std::size_t count = 0;
    for (std::size_t p = sinks; p < window; ++p) {
      if (std::ranges::binary_search(selected, p)) continue;
      const bool fits =
          kernels::host::fits_a_group(index.row(head, p), shape_.dtype, 2 * shape_.head_dim);
      count += p >= whole || !fits ? 1 : 0;
    }
    return count;
  }

  /// Builds, selects, grows and selects again, over rows as they are.
  void exercise(BlockStore& rows, std::size_t prompt, std::size_t window_tokens) {
    PolicyIndex index(*policy_, rows, sinks);
    index.build(prompt);
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, std::size_t{37}, prompt}) {
      expect_selection(index, prompt - window_tokens, count);
    }
    for (std::size_t end = prompt; end < rows.tokens();) {
      end = std::min(end + policy_->traits().batch_tokens_min, rows.tokens());
      index.extend(end);
    }
    const std::size_t window = rows.tokens() - window_tokens;
    expect_selection(index, window, 50);
    expect_selection(index, window, rows.tokens());
  }

  KvShape shape_{.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16};
  std::unique_ptr<RetrievalPolicy> policy_ =
      policies::make_retrieval_policy(GetParam(), testing::retrieval_options()).value();
};

TEST_P(EachIndexedPolicy, ListsDistinctCandidatesInRisingOrder) {
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f32}) {
    shape_.dtype = dtype;
    BlockStore rows(shape_, 16, 900);
    rows.fill_normal(62);
    exercise(rows, 700, 60);
  }
}

TEST_P(EachIndexedPolicy, TakesAPromptOfOneIndexedToken) {
  BlockStore rows(shape_, 16, 200);
  rows.fill_normal(62);
  exercise(rows, sinks + 1, 0);
}

TEST_P(EachIndexedPolicy, TakesKeysThatAreAllEqual) {
  BlockStore rows(shape_, 16, 500);
  rows.fill([](std::size_t, std::size_t, std::size_t i) { return static_cast<float>(i % 3); });
  exercise(rows, 400, 30);
}

TEST_P(EachIndexedPolicy, TakesKeysOfZero) {
  BlockStore rows(shape_, 16, 500);
  rows.fill([](std::size_t, std::size_t, std::size_t) { return 0.0F; });
  exercise(rows, 400, 30);
}

TEST_P(EachIndexedPolicy, TakesOneKeyFarFromAllOthers) {
  Rng rng(testing::seed(), {66});
  BlockStore rows(shape_, 16, 500);
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    return testing::normal(rng) + (p == 200 && i < shape_.head_dim ? 3e4F : 0.0F);
  });
  exercise(rows, 400, 30);
}

TEST_P(EachIndexedPolicy, TakesKeysThatAreNoNumbers) {
  Rng rng(testing::seed(), {63});
  BlockStore rows(shape_, 16, 500);
  rows.fill([&](std::size_t p, std::size_t, std::size_t i) {
    if (p % 97 == 50 && i == 3) return std::numeric_limits<float>::quiet_NaN();
    if (p % 97 == 70 && i == 5) return std::numeric_limits<float>::infinity();
    return testing::normal(rng);
  });
  exercise(rows, 400, 30);
  rows.fill([](std::size_t, std::size_t, std::size_t) {
    return std::numeric_limits<float>::quiet_NaN();
  });
  exercise(rows, 400, 30);
}

TEST_P(EachIndexedPolicy, GrowsTheSameWayAgainAfterBeingTruncated) {
  BlockStore rows(shape_, 16, 900);
  rows.fill_normal(64);
  PolicyIndex index(*policy_, rows, sinks);
  index.build(600);
  const std::size_t step = std::max<std::size_t>(policy_->traits().batch_tokens_min, 50);
  index.extend(600 + step);
  index.extend(600 + 2 * step);
  const auto expected = index.select(query(), 600 + step, 80);
  index.truncate(600);
  index.extend(600 + step);
  index.extend(600 + 2 * step);
  EXPECT_EQ(index.select(query(), 600 + step, 80), expected);
}

TEST_P(EachIndexedPolicy, BuildsTheSameBitsOverAnotherIndex) {
  BlockStore rows(shape_, 16, 500);
  rows.fill_normal(65);
  PolicyIndex first(*policy_, rows, sinks);
  first.build(500);
  PolicyIndex second(*policy_, rows, sinks);
  second.build(400);
  second.extend(500);
  second.build(500);
  EXPECT_EQ(second.select(query(), 470, 60), first.select(query(), 470, 60));
}

TEST_P(EachIndexedPolicy, SelectsForABatchWhatItSelectsForEachAlone) {
  BlockStore rows(shape_, 16, 900);
  rows.fill_normal(67);
  PolicyIndex index(*policy_, rows, sinks);
  index.build(900);
  std::vector<PolicyIndex::Wanted> all;
  std::vector<PolicyIndex::Lists> expected;
  for (const auto& [window, count] :
       {std::pair{870UL, 60UL}, {sinks + 1, 5UL}, {500UL, 0UL}, {899UL, 300UL}}) {
    all.push_back({testing::normal_query(shape_, count), window, count});
    expected.push_back(index.select(all.back().query, window, count));
  }
  EXPECT_EQ(index.select_all(all), expected);
}

INSTANTIATE_TEST_SUITE_P(Table, EachIndexedPolicy,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
