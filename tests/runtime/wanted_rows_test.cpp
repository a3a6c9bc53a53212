// The rows that a step wants of each unit, against the plainest of models.
#include "cache/wanted_rows.hpp"

#include <gmock/gmock.h>

#include <map>
#include <vector>

#include "terrace/core/rng.hpp"

namespace terrace {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::uint32_t> places_of(const WantedRows& rows, UnitKey unit) {
  std::vector<std::uint32_t> places;
  rows.for_each_place(unit, [&](std::uint32_t place) { places.push_back(place); });
  return places;
}

TEST(WantedRows, NamesUnitsInRisingOrderAndTheirRowsFromTheLast) {
  WantedRows rows;
  rows.begin(200, 10);
  rows.add(130, 0);
  rows.add(7, 2);
  rows.add(130, 3);
  rows.add(64, 9);
  EXPECT_THAT(rows.units(), ElementsAre(7, 64, 130));
  EXPECT_EQ(rows.count(130), 2U);
  EXPECT_THAT(places_of(rows, 130), ElementsAre(3, 0));
  EXPECT_EQ(rows.count(8), 0U);
  EXPECT_THAT(places_of(rows, 8), IsEmpty());
}

TEST(WantedRows, KeepsNothingOfTheLayerBefore) {
  Rng rng(5);
  WantedRows rows;
  for (int layer = 0; layer < 200; ++layer) {
    const std::size_t units = 1 + rng.below(300);
    const std::size_t places = rng.below(400);
    std::map<UnitKey, std::vector<std::uint32_t>> model;
    rows.begin(units, places);
    for (std::uint32_t place = 0; place < places; ++place) {
      if (rng.uniform() < 0.3) continue;
      const auto unit = static_cast<UnitKey>(rng.below(units));
      rows.add(unit, place);
      model[unit].insert(model[unit].begin(), place);
    }
    const std::span<const UnitKey> named = rows.units();
    ASSERT_EQ(named.size(), model.size());
    auto unit = named.begin();
    for (const auto& [key, expected] : model) {
      ASSERT_EQ(*unit++, key);
      EXPECT_EQ(rows.count(key), expected.size());
      EXPECT_EQ(places_of(rows, key), expected);
    }
  }
}

}  // namespace
}  // namespace terrace
