// Planning a step of the resident cache takes no memory from the heap, for any policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/counted_allocations.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/runtime/cache_options.hpp"

namespace terrace {
namespace {

constexpr std::size_t keys = 1000;

/// Steps that drift: most units stay, units differ in size.
class Steps {
 public:
  std::span<const policies::WantedUnit> next() {
    for (UnitKey& unit : units_) {
      if (rng_.uniform() < 0.1) unit = static_cast<UnitKey>(rng_.below(keys));
    }
    sorted_ = units_;
    std::sort(sorted_.begin(), sorted_.end());
    const auto end = std::unique(sorted_.begin(), sorted_.end());
    wanted_.clear();
    for (auto unit = sorted_.begin(); unit != end; ++unit) {
      const std::uint32_t rows = 1 + *unit % 40;
      wanted_.push_back(
          {.unit = *unit, .rows_wanted = rows, .slots = 1 + *unit % 4, .refill_rows = rows / 2});
    }
    return wanted_;
  }

 private:
  Rng rng_{7};
  std::vector<UnitKey> units_ = std::vector<UnitKey>(60);
  std::vector<UnitKey> sorted_ = std::vector<UnitKey>(60);
  std::vector<policies::WantedUnit> wanted_ = std::vector<policies::WantedUnit>(60);
};

TEST(CacheAllocation, ThereIsNoneInAStep) {
  for (const auto& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    for (const char* const admission : {"always", "refill"}) {
      SCOPED_TRACE(std::string(entry.name) + " " + admission);
      auto cache = make_resident_cache({.policy = std::string(entry.name), .admission = admission},
                                       100, keys)
                       .value();
      policies::CachePlan plan;
      Steps steps;
      for (int i = 0; i < 500; ++i) cache.plan_step(steps.next(), plan);
      const std::size_t before = testing::allocations();
      for (int i = 0; i < 2000; ++i) cache.plan_step(steps.next(), plan);
      EXPECT_EQ(testing::allocations(), before);
      EXPECT_GT(cache.counters().admitted_units, 100U);
    }
  }
}

TEST(CacheAllocation, IsSeenWhereThereIsOne) {
  const std::size_t before = testing::allocations();
  std::vector<int> memory(3);
  // A compiler may omit memory that is never read, and clang does.
  asm volatile("" : : "r"(memory.data()) : "memory");
  EXPECT_GT(testing::allocations(), before);
}

}  // namespace
}  // namespace terrace
