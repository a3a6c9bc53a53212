// Counters of caches, held against each other.
#pragma once

#include <gtest/gtest.h>

#include "terrace/runtime/counters.hpp"

namespace terrace::tuning {

inline void expect_same_counters(const CacheCounters& a, const CacheCounters& b) {
  EXPECT_EQ(a.rows_hit, b.rows_hit);
  EXPECT_EQ(a.rows_missed, b.rows_missed);
  EXPECT_EQ(a.rows_resident, b.rows_resident);
  EXPECT_EQ(a.blocks_hit, b.blocks_hit);
  EXPECT_EQ(a.blocks_missed, b.blocks_missed);
  EXPECT_EQ(a.admitted, b.admitted);
  EXPECT_EQ(a.adopted, b.adopted);
  EXPECT_EQ(a.evicted, b.evicted);
  EXPECT_EQ(a.refused, b.refused);
}

}  // namespace terrace::tuning
