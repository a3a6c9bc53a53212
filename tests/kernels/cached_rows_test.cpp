// Rows of cached clusters: taken from host blocks into slots, found there, and gone when they
// leave.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cached_scenario.hpp"

namespace terrace {
namespace {

using testing::CachedScenario;
using testing::run;
using testing::some_rows;

TEST(CacheRows, PutsRowsIntoTheirPlacesAndFindsThemThere) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    for (const std::size_t head_dim : {6U, 64U}) {
      CachedScenario scenario(scope, head_dim);
      const auto changes = some_rows();
      EXPECT_EQ(scenario.change(changes), changes.size() * scenario.shape_.row_bytes());
      EXPECT_TRUE(scenario.memory_.intact());
      for (const CachedRowChange& each : changes) {
        EXPECT_EQ(
            std::memcmp(scenario.place(each.number), scenario.host_.row(each.head, each.position),
                        scenario.shape_.row_bytes()),
            0);
      }
      scenario.select(1);
      ResolveRows request = scenario.request();
      request.cached = scenario.cached();
      run(request);
      scenario.fetch();
      std::size_t found = 0;
      for (std::size_t list = 0; list < scenario.lists_; ++list) {
        const std::size_t head = list * 2 / scenario.lists_;
        for (std::size_t i = 0; i < scenario.counts_[list]; ++i) {
          const std::uint32_t position = scenario.ids_[list * scenario.stride_ + i];
          const std::byte* const row = scenario.rows_[list * scenario.stride_ + i];
          const std::uint32_t number = scenario.numbers_[position * 2 + head];
          if (scenario.device_.row(head, position) != nullptr) {
            EXPECT_EQ(row, scenario.device_.row(head, position)) << "blocks come first";
          } else if (number != 0) {
            EXPECT_EQ(row, scenario.place(number));
            ++found;
          } else {
            EXPECT_EQ(
                std::memcmp(row, scenario.host_.row(head, position), scenario.shape_.row_bytes()),
                0);
          }
        }
      }
      EXPECT_GT(found, 0U);
      EXPECT_GT(scenario.misses(), 0U);
    }
  }
}

TEST(CacheRows, TakesStagedRowsFromWhereTheyAreAndMovesNothingForThem) {
  CachedScenario scenario(ListScope::query_head, 64);
  scenario.select(1);
  scenario.resolve();
  scenario.fetch();
  std::vector<CachedRowChange> changes;
  for (std::uint32_t i = 0; i < scenario.misses(); ++i) {
    const MissedRow& missed = scenario.missed_[i];
    const auto place = static_cast<std::size_t>(missed.target - scenario.staging_.data()) /
                       scenario.shape_.row_bytes();
    changes.push_back({.position = missed.position,
                       .head = missed.head,
                       .number = i + 1,
                       .staged = static_cast<std::uint32_t>(place + 1)});
  }
  ASSERT_GT(changes.size(), 2U);
  changes.back().staged = 0;
  EXPECT_EQ(scenario.change(changes), scenario.shape_.row_bytes());
  for (const CachedRowChange& each : changes) {
    EXPECT_EQ(std::memcmp(scenario.place(each.number), scenario.host_.row(each.head, each.position),
                          scenario.shape_.row_bytes()),
              0);
  }
}

TEST(CacheRows, ForgetsRowsThatLeaveAndMovesNothingForThem) {
  CachedScenario scenario(ListScope::kv_head, 8);
  scenario.change(some_rows());
  auto leaving = some_rows();
  leaving.resize(100);
  for (CachedRowChange& each : leaving) each.number = 0;
  leaving.push_back({.position = 1, .head = 1, .number = 500});
  EXPECT_EQ(scenario.change(leaving), scenario.shape_.row_bytes());
  const auto after = some_rows();
  for (std::size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(scenario.numbers_[after[i].position * 2 + after[i].head],
              i < 100 ? 0U : after[i].number);
  }
  EXPECT_EQ(scenario.numbers_[1 * 2 + 1], 500U);
}

TEST(CacheRows, DoesNothingForNoChanges) {
  CachedScenario scenario(ListScope::kv_head, 8);
  EXPECT_EQ(scenario.change({}), 0U);
  EXPECT_TRUE(std::ranges::all_of(scenario.numbers_, [](std::uint32_t n) { return n == 0; }));
}

}  // namespace
}  // namespace terrace
