// Finding and fetching selected rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "kernels/resolve_scenario.hpp"
#include "terrace/kernels/reference.hpp"

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

/// The outcome of a call: where each listed row is, and the misses by their staging rows.
struct Resolved {
  std::vector<std::byte*> rows;
  std::vector<std::tuple<std::byte*, std::uint32_t, std::uint32_t>> missed;
  std::vector<std::byte> staged;

  bool operator==(const Resolved&) const = default;
};

Resolved outcome_of(ResolveScenario& scenario) {
  Resolved outcome;
  for (std::size_t list = 0; list < scenario.lists_; ++list) {
    const auto first =
        scenario.rows_.begin() + static_cast<std::ptrdiff_t>(list * scenario.stride_);
    outcome.rows.insert(outcome.rows.end(), first, first + scenario.counts_[list]);
  }
  for (std::size_t i = 0; i < scenario.misses(); ++i) {
    const MissedRow& missed = scenario.missed_[i];
    outcome.missed.emplace_back(missed.target, missed.head, missed.position);
  }
  std::ranges::sort(outcome.missed);
  const auto staging = scenario.staging_.span();
  outcome.staged.assign(staging.begin(), staging.end());
  return outcome;
}

TEST(ResolveRows, SaysAndFetchesWhatTheReferenceDoes) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    for (const std::size_t size : {7U, 60U, 300U}) {
      ResolveScenario scenario(scope, 3, size, 6);
      for (std::uint64_t step = 0; step < 2; ++step) {
        SCOPED_TRACE(std::to_string(size) + " rows per list, " + testing::seed_text());
        const auto clear_staging = [&] {
          std::ranges::fill(scenario.staging_.span(), std::byte{0});
        };
        clear_staging();
        scenario.select(step);
        scenario.resolve();
        scenario.fetch();
        const Resolved seen = outcome_of(scenario);
        clear_staging();
        kernels::reference::resolve_rows(scenario.request());
        kernels::reference::fetch_rows(scenario.fetch_request());
        EXPECT_TRUE(seen == outcome_of(scenario));
        ASSERT_GT(scenario.misses(), 0U);
        scenario.staging_[static_cast<std::size_t>(scenario.missed_[0].target -
                                                   scenario.staging_.data())] ^= std::byte{1};
        EXPECT_FALSE(seen == outcome_of(scenario));
      }
    }
  }
}

TEST(FetchRows, CopiesNothingWhenNothingIsMissed) {
  ResolveScenario scenario(ListScope::kv_head, 1, 10);
  EXPECT_EQ(scenario.fetch(), 0U);
}

}  // namespace
}  // namespace terrace
