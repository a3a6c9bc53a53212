#include "pcie/row_places.hpp"

#include <gmock/gmock.h>

#include <algorithm>

namespace terrace::bench {
namespace {

TEST(RowPlaces, AscendAllOverWhatThereIsWithSomeSideBySide) {
  constexpr std::size_t there = 16'000;
  constexpr std::size_t count = 1'000;
  const auto places = row_places(there, count, true);
  ASSERT_EQ(places.size(), count);
  std::size_t neighbours = 0;
  for (std::size_t i = 1; i < count; ++i) {
    ASSERT_LT(places[i - 1], places[i]);
    if (places[i] == places[i - 1] + 1) ++neighbours;
  }
  EXPECT_LT(places.back(), there);
  EXPECT_GT(places.back(), there * 9 / 10);
  EXPECT_NEAR(static_cast<double>(places[count / 2]), there / 2.0, there / 8.0);
  EXPECT_GT(neighbours, count / 4);
  EXPECT_LT(neighbours, count * 3 / 4);
}

TEST(RowPlaces, FitWhereThereIsLittleRoom) {
  EXPECT_THAT(row_places(3, 3, true), testing::ElementsAre(0, 1, 2));
  EXPECT_THAT(row_places(9, 2, false), testing::ElementsAre(0, 1));
  for (std::size_t there = 1; there < 40; ++there) {
    for (std::size_t count = 1; count <= there; ++count) {
      const auto places = row_places(there, count, true);
      EXPECT_TRUE(std::ranges::is_sorted(places));
      EXPECT_EQ(std::ranges::adjacent_find(places), places.end());
      EXPECT_LT(places.back(), there);
    }
  }
}

}  // namespace
}  // namespace terrace::bench
