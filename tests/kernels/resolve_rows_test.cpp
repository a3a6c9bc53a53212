// Finding and fetching selected rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kernels/resolve_scenario.hpp"

namespace terrace {
namespace {

using testing::ResolveScenario;

TEST(ResolveRows, FindsResidentRowsAndStagesTheOthersOnce) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    for (const std::size_t head_dim : {6U, 8U, 64U}) {
      for (const std::size_t size : {0U, 1U, 60U, 300U}) {
        SCOPED_TRACE(std::to_string(size) + " rows per list, head_dim " + std::to_string(head_dim) +
                     ", " + testing::seed_text());
        ResolveScenario scenario(scope, 4, size, head_dim);
        for (std::uint64_t step = 0; step < 3; ++step) {
          scenario.select(step);
          scenario.resolve();
          EXPECT_EQ(scenario.fetch(), scenario.misses() * scenario.shape_.row_bytes());
          EXPECT_EQ(scenario.misses(), scenario.expect_right_rows());
          scenario.expect_order();
          EXPECT_TRUE(scenario.staging_.intact());
        }
      }
    }
  }
}

TEST(ResolveRows, StartsOverWhenTheCountOfMissesIsNearItsEnd) {
  ResolveScenario scenario(ListScope::query_head, 4, 60);
  scenario.epoch_[0] = std::numeric_limits<std::uint32_t>::max() - 100;
  std::fill(scenario.seen_.begin(), scenario.seen_.end(), scenario.epoch_[0]);
  for (std::uint64_t step = 0; step < 3; ++step) {
    scenario.select(step);
    scenario.resolve();
    scenario.fetch();
    EXPECT_EQ(scenario.misses(), scenario.expect_right_rows());
  }
  EXPECT_LE(scenario.epoch_[0], 3 * 8 * scenario.stride_);
}

TEST(FetchRows, CopiesNothingWhenNothingIsMissed) {
  ResolveScenario scenario(ListScope::kv_head, 1, 10);
  EXPECT_EQ(scenario.fetch(), 0U);
}

}  // namespace
}  // namespace terrace
