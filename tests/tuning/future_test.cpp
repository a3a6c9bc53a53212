#include "terrace/tuning/future.hpp"

#include <gtest/gtest.h>

namespace terrace::tuning {
namespace {

TEST(LayerFuture, EndsForAUnitWhereItsKeyMeansAnother) {
  RecordedFuture recorded;
  const auto add = [&](const std::vector<policies::WantedUnit>& wanted, bool renamed) {
    recorded.add({}, {.wanted = wanted, .renamed = renamed});
  };
  add({{.unit = 1}}, true);
  add({{.unit = 2}}, false);
  add({{.unit = 1}}, true);
  add({{.unit = 1}, {.unit = 2}}, false);
  LayerFuture future(recorded.of(0, 0));
  const auto next = [&] {
    future.advance();
    return std::pair(future.next_step(1), future.next_step(2));
  };
  constexpr std::uint64_t never = Foresight::never;
  EXPECT_EQ(next(), std::pair(never, std::uint64_t{1}));
  EXPECT_EQ(next(), std::pair(never, never));
  EXPECT_EQ(next(), std::pair(std::uint64_t{3}, std::uint64_t{3}));
  EXPECT_EQ(next(), std::pair(never, never));
  EXPECT_EQ(future.next_step(1000), never);
}

TEST(RecordedFuture, KeepsNoMoreThanItMay) {
  RecordedFuture recorded(3);
  const std::vector<policies::WantedUnit> two{{.unit = 1}, {.unit = 2}};
  recorded.add({}, {.wanted = two});
  EXPECT_TRUE(recorded.complete());
  recorded.add({}, {.wanted = two});
  EXPECT_FALSE(recorded.complete());
  for (int i = 0; i < 10; ++i) recorded.add({}, {.wanted = two});
  EXPECT_LE(recorded.of(0, 0).units.size(), 4U);
}

TEST(TrafficCutter, SaysOfClustersAloneThatTheirKeysMeanOthers) {
  // A cluster's number means another one when its index is built anew; a block stays where it is.
  const TraceHead head{.shape = {.layers = 1, .query_heads = 1, .kv_heads = 1, .head_dim = 16},
                       .block_tokens = 8,
                       .slot_rows = 4};
  const TraceRecord record{.position = 40,
                           .window_begin = 32,
                           .head_counts = {1},
                           .positions = {9},
                           .units = {{.unit = 3, .rows = 1, .size_rows = 5}},
                           .renamed = true};
  for (const auto granularity : {CacheGranularity::block, CacheGranularity::cluster}) {
    auto cutter = TrafficCutter::create(head, {granularity, 8});
    ASSERT_TRUE(cutter.has_value());
    const LayerTraffic& traffic = cutter->cut(record);
    EXPECT_EQ(traffic.wanted.size(), 1U);
    EXPECT_EQ(traffic.renamed, granularity == CacheGranularity::cluster);
  }
}

}  // namespace
}  // namespace terrace::tuning
