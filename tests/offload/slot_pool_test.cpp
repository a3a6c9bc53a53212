#include "terrace/offload/slot_pool.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <map>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

TEST(SlotPool, CutsSlotsFromSlabsAndGivesEmptyOnesBack) {
  const auto backend = HostBackend::create({}).value();
  auto pool = SlotPool::create(*backend, {.slot_bytes = 100, .slab_bytes = 1024}).value();
  EXPECT_EQ(pool.stride_bytes(), 128U);
  std::vector<std::byte*> slots;
  for (int i = 0; i < 9; ++i) slots.push_back(pool.allocate().value());
  EXPECT_EQ(pool.slab_count(), 2U);
  EXPECT_EQ(backend->memory(Tier::device).in_use, 2048U);
  pool.release(slots.back());
  EXPECT_EQ(pool.trim(), 1024U);
  EXPECT_EQ(backend->memory(Tier::device).in_use, 1024U);
  EXPECT_EQ(pool.slots_in_use(), 8U);
}

TEST(SlotPool, FallsBackToSmallSlabsUnderATightLimit) {
  const auto backend = HostBackend::create({.device_memory_limit = 5 * 64}).value();
  auto pool = SlotPool::create(*backend, {.slot_bytes = 64, .slab_bytes = 1 << 20}).value();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(pool.allocate());
  const auto refused = pool.allocate();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
}

TEST(SlotPool, MapsNothingMoreForSlotsThatAreReserved) {
  const auto backend = HostBackend::create({}).value();
  auto pool = SlotPool::create(*backend, {.slot_bytes = 128, .slab_bytes = 1024}).value();
  ASSERT_TRUE(pool.allocate());
  EXPECT_FALSE(pool.reserve_more(7));
  EXPECT_EQ(pool.slab_count(), 1U);
  EXPECT_TRUE(pool.reserve_more(20));
  EXPECT_EQ(pool.slab_count(), 2U) << "one at a time";
  EXPECT_TRUE(pool.reserve_more(20));
  EXPECT_FALSE(pool.reserve_more(20));
  EXPECT_EQ(pool.free_slots(), 23U);
  const std::size_t mapped = backend->memory(Tier::device).in_use;
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(pool.allocate());
  EXPECT_EQ(backend->memory(Tier::device).in_use, mapped);
}

TEST(SlotPool, ReservesWhatFits) {
  const auto backend = HostBackend::create({.device_memory_limit = 5 * 64}).value();
  auto pool = SlotPool::create(*backend, {.slot_bytes = 64, .slab_bytes = 256}).value();
  while (pool.reserve_more(100)) continue;
  EXPECT_EQ(pool.free_slots(), 5U);
}

TEST(SlotPool, RefusesSlotsThatMakeNoSense) {
  const auto backend = HostBackend::create({}).value();
  EXPECT_FALSE(SlotPool::create(*backend, {.slot_bytes = 0}));
  EXPECT_FALSE(SlotPool::create(*backend, {.slot_bytes = 64, .alignment = 3}));
}

TEST(SlotPool, GivesDisjointSlotsUnderRandomUse) {
  const std::uint64_t seed = fuzz_seed(6);
  Rng rng(seed);
  constexpr std::size_t slot_bytes = 256;
  constexpr std::size_t slots_max = 50;
  const auto backend = HostBackend::create({.device_memory_limit = slots_max * slot_bytes}).value();
  auto pool =
      SlotPool::create(*backend, {.slot_bytes = slot_bytes, .slab_bytes = 8 * slot_bytes}).value();
  std::map<std::byte*, std::byte> model;  // slot -> what it was filled with
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    const std::uint64_t what = rng.below(100);
    // Long phases of growth and of shrinking, so that slabs fill and empty.
    const std::uint64_t growth = (step / 500) % 2 == 0 ? 70 : 30;
    if (what < growth) {
      const auto slot = pool.allocate();
      ASSERT_EQ(slot.has_value(), model.size() < slots_max);
      if (!slot) continue;
      ASSERT_FALSE(model.contains(*slot));
      model[*slot] = static_cast<std::byte>(rng());
      std::memset(*slot, static_cast<int>(model[*slot]), slot_bytes);
    } else if (what < 99 && !model.empty()) {
      const auto victim =
          std::next(model.begin(), static_cast<std::ptrdiff_t>(rng.below(model.size())));
      ASSERT_EQ(victim->first[0], victim->second);
      ASSERT_EQ(victim->first[slot_bytes - 1], victim->second);
      pool.release(victim->first);
      model.erase(victim);
    } else {
      pool.trim();
    }
    ASSERT_EQ(pool.slots_in_use(), model.size());
  }
  for (const auto& [slot, mark] : model) pool.release(slot);
  pool.trim();
  EXPECT_EQ(backend->memory(Tier::device).in_use, 0U);
}

}  // namespace
}  // namespace terrace::offload
