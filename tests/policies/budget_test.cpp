#include "terrace/policies/budget.hpp"

#include <gtest/gtest.h>

namespace terrace::policies {
namespace {

const RetrievalTraits selecting{.name = "selecting"};
const RetrievalTraits window_only{.name = "window", .selects = false};

TEST(SplitBudget, AddsUpToTheBudgetWithTheCurrentToken) {
  for (const RetrievalTraits& traits : {selecting, window_only}) {
    for (std::size_t budget = 1; budget < 500; ++budget) {
      for (const double share : {0.0, 0.25, 0.5, 1.0}) {
        const BudgetSplit split = split_budget(
            {.budget_tokens = budget, .sink_tokens = 32, .window_share = share}, traits);
        EXPECT_EQ(split.sinks + split.window + split.selected + 1, budget);
      }
    }
  }
}

TEST(SplitBudget, KeepsTheSinksThatFit) {
  EXPECT_EQ(split_budget({.budget_tokens = 409}, selecting).sinks, 32U);
  EXPECT_EQ(split_budget({.budget_tokens = 21}, selecting).sinks, 10U);
  EXPECT_EQ(split_budget({.budget_tokens = 1}, selecting).sinks, 0U);
}

TEST(SplitBudget, GivesTheWindowWhatAPolicyDoesNotSelect) {
  const BudgetSplit split = split_budget({.budget_tokens = 100, .sink_tokens = 4}, window_only);
  EXPECT_EQ(split.window, 95U);
  EXPECT_EQ(split.selected, 0U);
}

TEST(SplitBudget, GivesNoWindowMoreThanItsLimit) {
  for (const RetrievalTraits& traits : {selecting, window_only}) {
    const BudgetSplit split =
        split_budget({.budget_tokens = 1000, .sink_tokens = 4, .window_tokens_max = 256}, traits);
    EXPECT_EQ(split.window, 256U);
    EXPECT_EQ(split.selected, traits.selects ? 1000U - 1 - 4 - 256 : 0U);
  }
}

TEST(SplitBudget, HasNoLimitForAPolicyThatKeepsEverything) {
  const RetrievalTraits full{.name = "full", .selects = false, .keeps_everything = true};
  EXPECT_GT(split_budget({.budget_tokens = 1}, full).window, std::size_t{1} << 60);
}

}  // namespace
}  // namespace terrace::policies
