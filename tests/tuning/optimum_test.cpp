#include "terrace/tuning/optimum.hpp"

#include <gtest/gtest.h>

#include <bit>

#include "terrace/tuning/replay.hpp"
#include "tuning/made_up_trace.hpp"

namespace terrace::tuning {
namespace {

/// The most rows that any choice of residents can hit, by trying them all.
std::uint64_t best_by_trial(const std::vector<std::vector<policies::WantedUnit>>& steps,
                            std::size_t units, std::size_t slots) {
  std::vector<std::int64_t> best(std::size_t{1} << units, -1);
  best[0] = 0;
  for (const auto& wanted : steps) {
    std::vector<std::int64_t> next(best.size(), -1);
    std::uint32_t wanted_set = 0;
    for (const auto& each : wanted) wanted_set |= 1U << each.unit;
    for (std::uint32_t resident = 0; resident < best.size(); ++resident) {
      if (best[resident] < 0) continue;
      std::int64_t hits = best[resident];
      for (const auto& each : wanted) {
        if ((resident >> each.unit & 1) != 0) hits += each.rows_wanted;
      }
      // Any part of what was resident or is wanted may stay.
      const std::uint32_t all = resident | wanted_set;
      for (std::uint32_t kept = all;; kept = (kept - 1) & all) {
        if (static_cast<std::size_t>(std::popcount(kept)) <= slots) {
          next[kept] = std::max(next[kept], hits);
        }
        if (kept == 0) break;
      }
    }
    best = std::move(next);
  }
  return static_cast<std::uint64_t>(*std::ranges::max_element(best));
}

TEST(OptimumBound, IsNeverBelowWhatAnyCacheCouldHitAndSeldomFarAbove) {
  const TraceHead head = made_up_head({.unit = TraceUnit::cluster});
  double worst = 1;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    OptimumBound bound(head, head.cache.granularity);
    std::vector<std::vector<policies::WantedUnit>> steps;
    constexpr std::size_t units = 7;
    for (int step = 0; step < 25; ++step) {
      std::vector<policies::WantedUnit> wanted;
      for (UnitKey unit = 0; unit < units; ++unit) {
        if (rng.below(3) != 0) continue;
        wanted.push_back(
            {.unit = unit, .rows_wanted = static_cast<std::uint32_t>(1 + rng.below(9))});
      }
      bound.add({}, {.wanted = wanted, .keys = units});
      steps.push_back(wanted);
    }
    for (std::size_t slots = 0; slots <= 4; ++slots) {
      const auto exact = static_cast<double>(best_by_trial(steps, units, slots));
      const double relaxed = bound.rows_hit(slots * steps.size());
      ASSERT_GE(relaxed, exact * (1 - 1e-9)) << "seed " << seed << " slots " << slots;
      if (slots > 1) worst = std::max(worst, relaxed / exact);
    }
  }
  EXPECT_LT(worst, 1.35);
}

TEST(OptimumBound, TakesAUnitThatIsRenamedForAnother) {
  OptimumBound bound(made_up_head({.unit = TraceUnit::cluster}), CacheGranularity::cluster);
  const std::vector<policies::WantedUnit> wanted{{.unit = 0, .rows_wanted = 5}};
  bound.add({}, {.wanted = wanted, .keys = 1});
  bound.add({}, {.wanted = wanted, .keys = 1, .renamed = true});
  EXPECT_DOUBLE_EQ(bound.rows_hit(100), 0);
  bound.add({}, {.wanted = wanted, .keys = 1});
  EXPECT_DOUBLE_EQ(bound.rows_hit(100), 5);
}

TEST(OptimumBound, IsEverythingButFirstWantsWhereAllFits) {
  const TraceHead head = made_up_head({.unit = TraceUnit::cluster});
  OptimumBound bound(head, head.cache.granularity);
  const std::vector<policies::WantedUnit> wanted{{.unit = 0, .rows_wanted = 5}};
  for (int step = 0; step < 4; ++step) bound.add({}, {.wanted = wanted, .keys = 1});
  EXPECT_DOUBLE_EQ(bound.rows_hit(100), 15);
}

}  // namespace
}  // namespace terrace::tuning
