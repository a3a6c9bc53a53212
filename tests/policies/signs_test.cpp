// The special parts of the policy signs.
#include <gmock/gmock.h>

#include <algorithm>

#include "policies/policy_index.hpp"

namespace terrace {
namespace {

using policies::SignsOptions;
using testing::BlockStore;
using ::testing::HasSubstr;
using testing::PolicyIndex;
using Estimates = policies::SignsOptions::Estimates;

constexpr KvShape shape{.layers = 1, .query_heads = 6, .kv_heads = 2, .head_dim = 64};
constexpr std::size_t sinks = 4;

std::unique_ptr<RetrievalPolicy> make_signs(const SignsOptions& options) {
  return policies::make_retrieval_policy("signs", {.signs = options}).value();
}

/// How many of the tokens that the oracle selects a policy selects.
std::size_t found(const RetrievalPolicy& policy, BlockStore& rows) {
  const auto oracle = policies::make_retrieval_policy("oracle").value();
  PolicyIndex index(policy, rows, sinks);
  PolicyIndex exact(*oracle, rows, sinks);
  index.build(1500);
  exact.build(1500);
  std::size_t both = 0;
  for (std::uint64_t i = 0; i < 5; ++i) {
    const std::vector<float> query = testing::normal_query(shape, 160 + i);
    const auto own = index.select(query, 1450, 100);
    const auto best = exact.select(query, 1450, 100);
    for (std::size_t head = 0; head < own.size(); ++head) {
      both += static_cast<std::size_t>(std::ranges::count_if(
          best[head], [&](std::uint32_t id) { return std::ranges::binary_search(own[head], id); }));
    }
  }
  return both;
}

TEST(Signs, FindManyOfWhatTheOracleFinds) {
  BlockStore rows(shape, 16, 1500);
  rows.fill_normal(161);
  EXPECT_GT(found(*make_signs({}), rows), 400U) << testing::seed_text();
}

TEST(Signs, HaveEntriesWhereTheOptionsSaySo) {
  for (const Estimates estimates : {Estimates::off, Estimates::on, Estimates::in_budget}) {
    const auto policy = make_signs({.group_tokens = 8, .estimates = estimates});
    const bool none = estimates == Estimates::off;
    EXPECT_EQ(policy->traits().gives_pseudo_entries, !none);
    EXPECT_EQ(policy->traits().estimates_rest, !none);
    EXPECT_EQ(policy->pseudo_capacity(640), none ? 0U : 80U);
  }
}

TEST(Signs, SelectFewerRowsWhereEntriesTakeTheirPlace) {
  BlockStore rows(shape, 16, 700);
  rows.fill_normal(162);
  for (const auto& [estimates, count] :
       {std::pair{Estimates::on, 100U}, std::pair{Estimates::in_budget, 80U}}) {
    const auto policy = make_signs({.estimates = estimates});
    PolicyIndex index(*policy, rows, sinks);
    index.build(700);
    for (const auto& list : index.select(testing::normal_query(shape, 163), 650, 100)) {
      EXPECT_EQ(list.size(), count);
    }
  }
}

TEST(Signs, HaveRowsAndEntriesWithinTheBudgetAfterASecondStageToo) {
  BlockStore rows(shape, 16, 700);
  rows.fill_normal(164);
  const auto policy =
      policies::make_retrieval_policy("signs", {.refine = {.bits = 2, .factor = 4},
                                                .signs = {.estimates = Estimates::in_budget}})
          .value();
  PolicyIndex index(*policy, rows, sinks);
  index.build(700);
  for (const auto& list : index.select(testing::normal_query(shape, 165), 650, 100)) {
    EXPECT_EQ(list.size(), 80U);
  }
  for (const std::uint32_t entries : index.pseudo_counts) EXPECT_EQ(entries, 20U);
}

TEST(Signs, RefuseGroupsThatDoNotDivideAPage) {
  for (const std::size_t tokens : {0U, 5U, 128U}) {
    const auto refused =
        policies::make_retrieval_policy("signs", {.signs = {.group_tokens = tokens}});
    ASSERT_FALSE(refused.has_value());
    EXPECT_THAT(std::string(refused.error().message()),
                HasSubstr("signs.group_tokens " + std::to_string(tokens)));
  }
}

}  // namespace
}  // namespace terrace
