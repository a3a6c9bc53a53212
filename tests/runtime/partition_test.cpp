// Sinks, index and window are a partition of a sequence at every step: while batches of tokens wait
// to be clustered, as they leave the window, and after.
#include <gtest/gtest.h>

#include <numeric>
#include <tuple>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::Scenario;
using testing::Traffic;

/// A policy, and the tokens of a prompt.
class EachGrowth : public ::testing::TestWithParam<std::tuple<std::string, std::size_t>> {};

TEST_P(EachGrowth, AttendsToEachTokenOnceAcrossThreeBatches) {
  Scenario scenario;
  scenario.runtime.shape = {.layers = 1, .query_heads = 2, .kv_heads = 2, .head_dim = 4};
  const auto& [policy, prompt] = GetParam();
  scenario.runtime.policy = policy;
  // Room for all: then lists are all that is before the window.
  scenario.runtime.budget.value = static_cast<double>(prompt + 1000);
  scenario.runtime.window_share = 0;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  std::size_t batches = 0;
  std::size_t window_begin = prompt;
  for (std::size_t step = 0; step < 500 && batches < 3; ++step) {
    ASSERT_TRUE(drive.step().has_value());
    const StepSelection chosen = drive.sequence().selection(LayerId{0});
    ASSERT_EQ(chosen.sinks.begin, 0U);
    ASSERT_EQ(chosen.window.end, prompt + step + 1);
    ASSERT_EQ(chosen.counts.size(), 2U);
    std::vector<std::uint32_t> before_window(chosen.window.begin - chosen.sinks.end);
    std::iota(before_window.begin(), before_window.end(),
              static_cast<std::uint32_t>(chosen.sinks.end));
    for (std::size_t list = 0; list < 2; ++list) {
      const auto ids = chosen.ids.subspan(list * chosen.stride, chosen.counts[list]);
      ASSERT_TRUE(std::ranges::equal(ids, before_window))
          << "step " << step << ", window from " << chosen.window.begin;
    }
    ASSERT_GE(chosen.window.begin, window_begin);
    if (chosen.window.begin > window_begin + 1) ++batches;
    window_begin = chosen.window.begin;
  }
  EXPECT_EQ(batches, 3U);
  drive.expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Prompts, EachGrowth,
                         ::testing::Combine(::testing::ValuesIn(testing::clustering_policies()),
                                            ::testing::Values(100U, 1092U, 5000U)),
                         [](const auto& one) {
                           return std::get<0>(one.param) + "_" +
                                  std::to_string(std::get<1>(one.param));
                         });

}  // namespace
}  // namespace terrace
