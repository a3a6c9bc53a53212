// Slots that resolving fills with the rows it misses.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "kernels/cached_scenario.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::CachedScenario;

/// A layer with slots for missed rows, empty at first.
class SlotScenario : public CachedScenario {
 public:
  SlotScenario(ListScope scope, std::size_t list_size, std::size_t slots)
      : CachedScenario(scope, 8, list_size),
        slots_(slots),
        each_(blocks * block_rows),
        calls_(2),
        counts_of_slots_(2) {}

  [[nodiscard]] ResolveRows slot_request() {
    ResolveRows op = request();
    op.cached = cached();
    op.slots = {.count = slots_, .each = each_.data(), .calls = calls_.data()};
    op.slot_counts = counts_of_slots_.data();
    return op;
  }

  /// Wants rows near those of the last step.
  void drift(std::uint64_t step) {
    Rng rng(testing::seed(), {step});
    for (std::size_t list = 0; list < lists_; ++list) {
      std::set<std::uint32_t> chosen;
      const auto centre = static_cast<std::uint32_t>(step * 5 + list * 30);
      while (chosen.size() < counts_[list]) {
        chosen.insert((centre + static_cast<std::uint32_t>(rng.below(2 * counts_[list] + 1))) %
                      positions);
      }
      std::copy(chosen.begin(), chosen.end(),
                ids_.begin() + static_cast<std::ptrdiff_t>(list * stride_));
    }
  }

  /// Every listed row has the bytes of its position, and each row that was missed is fetched once.
  void expect_right_bytes() {
    std::set<std::pair<std::uint32_t, std::uint32_t>> fetched;
    for (std::size_t i = 0; i < misses(); ++i) {
      EXPECT_TRUE(fetched.emplace(missed_[i].head, missed_[i].position).second) << "fetched twice";
    }
    for (std::size_t list = 0; list < lists_; ++list) {
      const std::size_t head = list * 2 / lists_;
      for (std::size_t i = 0; i < counts_[list]; ++i) {
        const std::size_t place = list * stride_ + i;
        EXPECT_EQ(std::memcmp(rows_[place], host_.row(head, ids_[place]), shape_.row_bytes()), 0);
      }
    }
  }

  /// Numbers lead to slots that hold their rows, and the other way round.
  void expect_consistent() {
    std::size_t held = 0;
    for (std::uint32_t head = 0; head < 2; ++head) {
      for (std::uint32_t slot = 0; slot < slots_; ++slot) {
        const std::uint32_t number = slot_number(shape_, cached(), head, slot);
        if (each_[number - 1].held == 0) continue;
        ++held;
        const std::size_t position = each_[number - 1].held - 1;
        EXPECT_EQ(numbers_[kernels::cached_place(shape_, head, position)], number);
      }
    }
    EXPECT_EQ(std::ranges::count_if(numbers_, [](std::uint32_t n) { return n != 0; }),
              static_cast<std::ptrdiff_t>(held));
  }

  [[nodiscard]] RowSlotCounts sum() const {
    RowSlotCounts sum;
    for (const RowSlotCounts& head : counts_of_slots_) {
      sum.found += head.found;
      sum.admitted += head.admitted;
      sum.evicted += head.evicted;
    }
    return sum;
  }

  std::size_t slots_;
  std::vector<RowSlot> each_;
  std::vector<std::uint32_t> calls_;
  std::vector<RowSlotCounts> counts_of_slots_;
};

/// The outcome of a call, with addresses as distances from where memory begins.
using Outcome =
    std::tuple<std::vector<std::ptrdiff_t>, std::set<std::ptrdiff_t>, std::vector<std::uint32_t>,
               std::vector<std::uint32_t>, std::uint32_t, std::uint32_t, std::uint32_t>;

std::ptrdiff_t distance(SlotScenario& scenario, const std::byte* row) {
  const std::byte* const staged = scenario.staging_.data();
  const std::byte* const cached = scenario.memory_.data();
  const auto bytes = [](auto& memory) { return memory.span().size(); };
  if (row >= cached && row < cached + bytes(scenario.memory_)) return row - cached;
  if (row >= staged && row < staged + bytes(scenario.staging_)) return -1 - (row - staged);
  return std::ptrdiff_t{1} << 40;  // resident
}

Outcome outcome_of(SlotScenario& scenario) {
  std::vector<std::ptrdiff_t> rows;
  for (std::size_t list = 0; list < scenario.lists_; ++list) {
    for (std::size_t i = 0; i < scenario.counts_[list]; ++i) {
      rows.push_back(distance(scenario, scenario.rows_[list * scenario.stride_ + i]));
    }
  }
  std::set<std::ptrdiff_t> missed;
  for (std::size_t i = 0; i < scenario.misses(); ++i) {
    missed.insert(distance(scenario, scenario.missed_[i].target));
  }
  std::vector<std::uint32_t> slots;
  for (const RowSlot& slot : scenario.each_) slots.insert(slots.end(), {slot.held, slot.found});
  const RowSlotCounts sum = scenario.sum();
  return {rows, missed, scenario.numbers_, slots, sum.found, sum.admitted, sum.evicted};
}

struct SlotCase {
  ListScope scope;
  std::size_t list_size;
  std::size_t slots;
};

class EachSlotCase : public ::testing::TestWithParam<SlotCase> {};

INSTANTIATE_TEST_SUITE_P(
    RowSlots, EachSlotCase,
    ::testing::Values(SlotCase{ListScope::kv_head, 60, 12}, SlotCase{ListScope::kv_head, 60, 120},
                      SlotCase{ListScope::kv_head, 100, 130},
                      SlotCase{ListScope::kv_head, 350, 180},
                      SlotCase{ListScope::query_head, 60, 12},
                      SlotCase{ListScope::query_head, 60, 170},
                      SlotCase{ListScope::query_head, 7, 36}),
    [](const auto& tested) {
      return std::string(tested.param.scope == ListScope::kv_head ? "kv_head_" : "query_head_") +
             std::to_string(tested.param.list_size) + "_of_" + std::to_string(tested.param.slots);
    });

TEST_P(EachSlotCase, DoesWhatTheReferenceDoes) {
  const SlotCase& its = GetParam();
  SlotScenario seen(its.scope, its.list_size, its.slots);
  SlotScenario expected(its.scope, its.list_size, its.slots);
  RowSlotCounts all;
  for (std::uint64_t step = 0; step < 30; ++step) {
    SCOPED_TRACE(testing::seed_text() + ", step " + std::to_string(step));
    seen.drift(step);
    expected.drift(step);
    testing::run(seen.slot_request());
    kernels::reference::resolve_rows(expected.slot_request());
    EXPECT_EQ(seen.fetch(), seen.misses() * seen.shape_.row_bytes());
    kernels::reference::fetch_rows(expected.fetch_request());
    ASSERT_TRUE(outcome_of(seen) == outcome_of(expected));
    seen.expect_right_bytes();
    seen.expect_consistent();
    EXPECT_LE(seen.sum().admitted, seen.misses());
    all.found += seen.sum().found;
    all.evicted += seen.sum().evicted;
  }
  EXPECT_GT(all.found, 0U);
  EXPECT_GT(all.evicted, 0U);
}

TEST(RowSlots, KeepWhatTheLastCallWanted) {
  SlotScenario scenario(ListScope::kv_head, 60, 60);
  scenario.select(1);
  testing::run(scenario.slot_request());
  const std::uint32_t missed = scenario.misses();
  ASSERT_GT(missed, 0U);
  EXPECT_EQ(scenario.sum().admitted, missed);
  scenario.fetch();
  testing::run(scenario.slot_request());
  EXPECT_EQ(scenario.misses(), 0U);
  EXPECT_EQ(scenario.sum().found, missed);
  scenario.expect_right_bytes();
}

TEST(RowSlots, TakeTheOldestRowAndAmongOldRowsThatOfTheLowestSlot) {
  SlotScenario scenario(ListScope::kv_head, 1, 12);
  // Blocks of an even number are on the host alone.
  const auto want = [&](std::uint32_t position) {
    std::ranges::fill(scenario.ids_, position);
    testing::run(scenario.slot_request());
    scenario.fetch();
  };
  const auto holds = [&](std::uint32_t position) { return scenario.numbers_[position * 2] != 0; };
  for (std::uint32_t position = 0; position < 12; ++position) want(position);
  EXPECT_EQ(scenario.sum().evicted, 0U);
  want(0);
  want(32);
  EXPECT_TRUE(holds(0));
  EXPECT_FALSE(holds(1));
  // Rows that nobody has wanted for long are alike, whichever was wanted last.
  for (std::uint32_t i = 0; i < 400; ++i) want(32);
  want(34);
  EXPECT_FALSE(holds(0)) << "slot 0";
  want(35);
  EXPECT_FALSE(holds(2)) << "slot 2: slot 1 has row 32";
  EXPECT_TRUE(holds(32));
}

TEST(RowSlots, StageWhatFindsNoSlot) {
  SlotScenario scenario(ListScope::kv_head, 60, 12);
  scenario.select(1);
  testing::run(scenario.slot_request());
  EXPECT_EQ(scenario.sum().admitted, 24U) << "12 of each head";
  EXPECT_GT(scenario.misses(), 24U);
  scenario.fetch();
  scenario.expect_right_bytes();
}

}  // namespace
}  // namespace terrace
