#include "remote/slot_map.hpp"

#include <gmock/gmock.h>

namespace terrace::offload {
namespace {

const RemoteAddress first{.host = "10.0.0.1", .port = 7000};
const RemoteAddress second{.host = "10.0.0.2", .port = 7000};

/// Slots as a Redis Cluster says them by CLUSTER KEYSLOT.
TEST(SlotMap, KnowsTheSlotOfAKey) {
  EXPECT_EQ(slot_of("123456789"), 0x31c3 % slot_count);  // the check value of CRC16/XMODEM
  EXPECT_EQ(slot_of("foo"), 12'182);
  EXPECT_EQ(slot_of("hello"), 866);
  EXPECT_EQ(slot_of(""), 0);
}

TEST(SlotMap, TakesTheFirstHashTagAlone) {
  EXPECT_EQ(slot_of("a{foo}b"), slot_of("foo"));
  EXPECT_EQ(slot_of("{foo}{bar}"), slot_of("foo"));
  EXPECT_EQ(slot_of("{{foo}}"), slot_of("{foo"));
  EXPECT_NE(slot_of("a{}foo"), slot_of("foo"));
  EXPECT_NE(slot_of("a{}foo"), slot_of(""));
  EXPECT_NE(slot_of("{foo"), slot_of("foo"));
  EXPECT_NE(slot_of("}foo{"), slot_of("foo"));
}

TEST(SlotMap, FindsTheNodeOfASlot) {
  SlotMap map;
  EXPECT_EQ(map.find(0), nullptr);
  const SlotRange ranges[] = {{.first = 0, .last = 99, .node = first},
                              {.first = 200, .last = 16'383, .node = second}};
  map.assign(ranges);
  EXPECT_EQ(*map.find(0), first);
  EXPECT_EQ(*map.find(99), first);
  EXPECT_EQ(map.find(100), nullptr);
  EXPECT_EQ(*map.find(16'383), second);
  EXPECT_EQ(map.find(16'384), nullptr);
  map.move(99, second);
  EXPECT_EQ(*map.find(99), second);
  EXPECT_EQ(*map.find(98), first);
  EXPECT_TRUE(map.has(first));
  map.assign(std::span(ranges).subspan(1));
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_FALSE(map.has(first));
}

TEST(SlotMap, LeavesOutRangesThatAreNone) {
  SlotMap map;
  const SlotRange ranges[] = {{.first = 0, .last = 16'384, .node = first},
                              {.first = 7, .last = 6, .node = first},
                              {.first = 5, .last = 5, .node = second}};
  map.assign(ranges);
  EXPECT_EQ(map.find(0), nullptr);
  EXPECT_EQ(*map.find(5), second);
  map.move(16'384, first);
  EXPECT_EQ(map.find(16'384), nullptr);
}

}  // namespace
}  // namespace terrace::offload
