#include "cache/itemwise_lru.hpp"

#include <gtest/gtest.h>

#include "tuning/made_up_trace.hpp"

namespace terrace::bench {
namespace {

using tuning::TraceRecord;

TEST(ItemwiseReplay, FollowsSequencesThatAreCutPausedAndClosed) {
  tuning::TraceHead head = tuning::made_up_head({});
  head.placement = Placement::resident_first;
  auto cutter = tuning::TrafficCutter::create(head, head.recorded()).value();
  ItemwiseReplay replay(head, 10);
  const auto apply = [&](const TraceRecord& record) { replay.apply(record, cutter.cut(record)); };
  const TraceRecord step{.position = 100,
                         .units = {{.unit = 3, .rows = 1}, {.unit = 7, .rows = 1}}};
  apply(step);
  apply(step);
  EXPECT_EQ(replay.counters().units_hit, 2U);
  apply({.kind = TraceRecord::Kind::load, .position = 60, .window_begin = 50});
  apply(step);
  EXPECT_EQ(replay.counters().units_hit, 3U) << "7 lay where the window was to lie";
  for (const auto kind : {TraceRecord::Kind::pause, TraceRecord::Kind::close}) {
    apply({.kind = kind});
    apply(step);
    EXPECT_EQ(replay.counters().units_hit, 3U);
  }
}

TEST(ItemwiseReplay, DropsUnitsThatAreRenamed) {
  const tuning::TraceHead head = tuning::made_up_head({.unit = tuning::TraceUnit::cluster});
  auto cutter = tuning::TrafficCutter::create(head, head.recorded()).value();
  ItemwiseReplay replay(head, 10);
  TraceRecord step{.position = 100, .units = {{.unit = 3, .rows = 1, .size_rows = 2}}};
  replay.apply(step, cutter.cut(step));
  step.renamed = true;
  replay.apply(step, cutter.cut(step));
  EXPECT_EQ(replay.counters().units_hit, 0U);
  step.renamed = false;
  replay.apply(step, cutter.cut(step));
  EXPECT_EQ(replay.counters().units_hit, 1U);
}

}  // namespace
}  // namespace terrace::bench
