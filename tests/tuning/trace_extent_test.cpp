#include "terrace/tuning/trace_extent.hpp"

#include <gtest/gtest.h>

#include "tuning/made_up_trace.hpp"

namespace terrace::tuning {
namespace {

TraceExtent extent_of(const std::vector<TraceRecord>& records) {
  ExtentCounter counter(made_up_head({.unit = TraceUnit::cluster}));  // 16 rows a slot
  for (const TraceRecord& record : records) counter.add(record);
  return counter.extent();
}

SelectedUnit cluster(UnitKey unit, std::uint32_t rows) {
  return {.unit = unit, .rows = 1, .size_rows = rows};
}

TEST(TraceExtent, GivesEachClusterSlotsOfItsOwn) {
  EXPECT_EQ(extent_of({}).cluster_slots, 0U);
  EXPECT_EQ(extent_of({{.units = {cluster(0, 1), cluster(5, 17)}}}).cluster_slots, 3U);
  EXPECT_EQ(extent_of({{.units = {cluster(0, 1)}}, {.units = {cluster(0, 40), cluster(1, 2)}}})
                .cluster_slots,
            4U)
      << "a cluster that grows counts once, as large as it became";
}

TEST(TraceExtent, TakesTheLargestOfLayersAndNamings) {
  EXPECT_EQ(extent_of({{.layer = 0, .units = {cluster(0, 1), cluster(1, 1)}},
                       {.layer = 1, .units = {cluster(2, 1)}},
                       {.layer = 0, .units = {cluster(3, 1)}, .renamed = true}})
                .cluster_slots,
            2U);
  EXPECT_EQ(extent_of({{.units = {cluster(0, 1)}},
                       {.kind = TraceRecord::Kind::close},
                       {.units = {cluster(1, 1)}}})
                .cluster_slots,
            1U);
}

TEST(TraceExtent, CountsTheUnitsOfWhatIsOpenAtATime) {
  const TraceRecord first{.layer = 0, .units = {cluster(9, 1)}};
  const TraceRecord second{.layer = 1, .units = {cluster(4, 1)}};
  constexpr std::size_t sequence = 2 * layer_units;
  EXPECT_EQ(extent_of({first, second, first}).keys, sequence + 15);
  EXPECT_EQ(extent_of({first, {.kind = TraceRecord::Kind::close}, second}).keys, sequence + 10);
  ExtentCounter blocks(made_up_head({}));
  blocks.add({.position = 80, .units = {{.unit = 3, .rows = 1}}});
  EXPECT_EQ(blocks.extent().keys, sequence + 11);
}

TEST(TraceExtent, CountsWhoShares) {
  EXPECT_EQ(extent_of({}).sharers, 1U);
  EXPECT_EQ(extent_of({{.kind = TraceRecord::Kind::share, .sharers = 3},
                       {.kind = TraceRecord::Kind::share, .sharers = 2}})
                .sharers,
            3U);
}

}  // namespace
}  // namespace terrace::tuning
