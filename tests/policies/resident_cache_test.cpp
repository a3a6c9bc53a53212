#include "terrace/policies/resident_cache.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::policies {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

/// First in, first out; notes what it is told.
class Fifo final : public ReplacementPolicy {
 public:
  explicit Fifo(std::vector<UnitKey>* touched = nullptr, std::size_t* victims_asked = nullptr,
                std::vector<UnitKey>* forgotten = nullptr)
      : touched_(touched), victims_asked_(victims_asked), forgotten_(forgotten) {}

  void resize(const CacheExtent& extent) override { EXPECT_GT(extent.keys, 0U); }
  void track(UnitKey key, std::uint32_t) override {
    EXPECT_EQ(std::ranges::count(order_, key), 0) << "tracked twice: " << key;
    order_.push_back(key);
  }
  void touch(std::span<const UnitKey> hits) override {
    for (const UnitKey key : hits) {
      EXPECT_EQ(std::ranges::count(order_, key), 1);
      if (touched_ != nullptr) touched_->push_back(key);
    }
  }
  void miss(std::span<const UnitKey> misses) override {
    for (const UnitKey key : misses) EXPECT_EQ(std::ranges::count(order_, key), 0);
  }
  void forget(UnitKey key) override {
    std::erase(order_, key);
    if (forgotten_ != nullptr) forgotten_->push_back(key);
  }
  void evict(UnitKey key) override { EXPECT_EQ(std::erase(order_, key), 1U); }
  std::optional<UnitKey> choose_victim(UnitKey /*incoming*/,
                                       FunctionRef<bool(UnitKey)> evictable) override {
    if (victims_asked_ != nullptr) ++*victims_asked_;
    const auto found = std::ranges::find_if(order_, [&](UnitKey key) { return evictable(key); });
    if (found == order_.end()) return std::nullopt;
    return *found;
  }
  [[nodiscard]] std::size_t size() const noexcept override { return order_.size(); }
  [[nodiscard]] std::size_t state_bytes() const noexcept override { return 0; }

 private:
  std::deque<UnitKey> order_;
  std::vector<UnitKey>* touched_;
  std::size_t* victims_asked_;
  std::vector<UnitKey>* forgotten_;
};

/// Worth as the test sets it; `purse` limits what refills may cost.
class SetWorth final : public AdmissionPolicy {
 public:
  explicit SetWorth(std::map<UnitKey, double>& worth, std::uint32_t purse = 1'000'000)
      : worth_(&worth), purse_(purse) {}
  void resize(std::size_t) override {}
  void want(UnitKey key, std::uint32_t, bool) override { (*worth_)[key] += 0; }
  [[nodiscard]] double worth(UnitKey key) const override { return worth_->at(key); }
  bool pay(std::uint32_t rows) override {
    if (rows > purse_) return false;
    purse_ -= rows;
    return true;
  }
  void give_back(std::uint32_t rows) override { purse_ += rows; }
  void end_step() override {
    for (auto& [key, its] : *worth_) its *= decay;
  }
  void forget(UnitKey key) override { worth_->erase(key); }
  [[nodiscard]] std::size_t state_bytes() const noexcept override { return 1'000'000; }

  double decay = 1;

 private:
  std::map<UnitKey, double>* worth_;
  std::uint32_t purse_;
};

WantedUnit unit(UnitKey key, std::uint32_t slots = 1) {
  return {.unit = key, .rows_wanted = 10, .slots = slots, .refill_rows = 128};
}

std::vector<UnitKey> admitted(const CachePlan& plan, const std::vector<WantedUnit>& wanted) {
  std::vector<UnitKey> keys;
  for (const std::uint32_t index : plan.admitted) keys.push_back(wanted[index].unit);
  return keys;
}

class ResidentCacheTest : public testing::Test {
 protected:
  ResidentCache make(std::size_t capacity, std::unique_ptr<AdmissionPolicy> admission = nullptr) {
    return ResidentCache::create(capacity, 1000,
                                 std::make_unique<Fifo>(&touched_, &victims_asked_, &forgotten_),
                                 std::move(admission))
        .value();
  }
  void step(ResidentCache& cache, std::vector<WantedUnit> wanted) {
    wanted_ = std::move(wanted);
    cache.plan_step(wanted_, plan_);
  }
  void fuzz(ResidentCache& cache, std::map<UnitKey, double>* worth = nullptr);
  void expect_worth_it(const std::map<UnitKey, double>& worth) const;

  std::vector<UnitKey> touched_;
  std::vector<UnitKey> forgotten_;
  std::size_t victims_asked_ = 0;
  std::vector<WantedUnit> wanted_;
  CachePlan plan_;
};

TEST_F(ResidentCacheTest, WhatIsAdmittedHitsFromTheNextStepOn) {
  auto cache = make(2);
  step(cache, {unit(1), unit(2)});
  EXPECT_THAT(plan_.hit, ElementsAre(0, 0));
  EXPECT_THAT(admitted(plan_, wanted_), ElementsAre(1, 2));
  step(cache, {unit(2), unit(1)});
  EXPECT_THAT(plan_.hit, ElementsAre(1, 1));
  EXPECT_THAT(touched_, ElementsAre(2, 1));
  EXPECT_EQ(cache.counters().hit_rows, 20U);
  EXPECT_EQ(cache.counters().missed_rows, 20U);
  EXPECT_EQ(cache.counters().refill_rows, 256U);
}

TEST_F(ResidentCacheTest, CountsItsOwnMemoryAndItsPolicies) {
  std::map<UnitKey, double> worth;
  const std::size_t own = make(2).state_bytes();
  EXPECT_GE(own, 1000 * (sizeof(std::uint64_t) + sizeof(std::uint32_t)));
  EXPECT_EQ(make(2, std::make_unique<SetWorth>(worth)).state_bytes(), own + 1'000'000);
}

TEST_F(ResidentCacheTest, NeverEvictsWhatTheStepWants) {
  auto cache = make(3);
  step(cache, {unit(1), unit(2), unit(3)});
  step(cache, {unit(4), unit(1), unit(5), unit(6)});  // only 2 and 3 may go
  EXPECT_THAT(plan_.hit, ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(plan_.evicted, ElementsAre(2, 3));
  EXPECT_THAT(admitted(plan_, wanted_), ElementsAre(4, 5));
  EXPECT_EQ(cache.counters().no_room_units, 1U);
  EXPECT_TRUE(cache.resident(1));
}

TEST_F(ResidentCacheTest, AListAsLongAsTheCacheReloadsOnlyWhatIsNew) {
  auto cache = make(32);
  std::vector<WantedUnit> first;
  for (UnitKey key = 0; key < 32; ++key) first.push_back(unit(key));
  step(cache, first);
  std::vector<WantedUnit> second;
  for (UnitKey key = 100; key < 108; ++key) second.push_back(unit(key));
  for (UnitKey key = 0; key < 24; ++key) second.push_back(unit(key));
  step(cache, second);
  EXPECT_EQ(plan_.admitted.size(), 8U);
  EXPECT_EQ(plan_.evicted.size(), 8U);
}

TEST_F(ResidentCacheTest, AdmitsTheWorthiestFirstAndRefusesWhatCostsMoreThanItSaves) {
  std::map<UnitKey, double> worth{{1, 127}, {2, 128}, {3, 500}, {4, 500}};
  auto cache = make(2, std::make_unique<SetWorth>(worth));
  step(cache, {unit(1), unit(2), unit(3), unit(4)});
  EXPECT_THAT(admitted(plan_, wanted_), ElementsAre(3, 4));
  EXPECT_EQ(cache.counters().refused_units, 1U);
  EXPECT_EQ(cache.counters().no_room_units, 1U);
}

TEST_F(ResidentCacheTest, GivesUpNothingThatIsWorthMoreThanTheNewcomerLessItsRefill) {
  std::map<UnitKey, double> worth{{1, 300}, {2, 200}, {3, 327}, {4, 328}};
  auto cache = make(2, std::make_unique<SetWorth>(worth));
  step(cache, {unit(1), unit(2)});
  step(cache, {unit(3)});
  EXPECT_THAT(plan_.admitted, IsEmpty()) << "327 - 128 is less than 200";
  EXPECT_EQ(cache.counters().no_room_units, 1U);
  step(cache, {unit(4)});
  EXPECT_THAT(plan_.evicted, ElementsAre(2));
  EXPECT_TRUE(cache.resident(1) && cache.resident(4));
}

TEST_F(ResidentCacheTest, WhatCameFreeGoesForWhatComesFreeWhateverItsWorth) {
  std::map<UnitKey, double> worth{{1, 900}, {2, 900}, {3, 800}, {4, 100}, {5, 100}};
  auto cache = make(3, std::make_unique<SetWorth>(worth));
  const auto free = [](UnitKey key) { return WantedUnit{.unit = key, .rows_wanted = 10}; };
  std::vector<UnitKey> evicted;
  ASSERT_TRUE(cache.adopt(1, 1, evicted));
  step(cache, {unit(2), free(3)});
  ASSERT_EQ(cache.used_slots(), 3U);
  step(cache, {free(4), free(5)});
  EXPECT_THAT(plan_.evicted, ElementsAre(3)) << "neither what was adopted nor what was paid for";
  EXPECT_THAT(admitted(plan_, wanted_), ElementsAre(4));
  step(cache, {free(3)});
  EXPECT_THAT(plan_.evicted, ElementsAre(4));
  worth[5] = 300;
  step(cache, {unit(5)});
  EXPECT_THAT(plan_.evicted, IsEmpty()) << "who costs a refill has to be worth more";
}

TEST_F(ResidentCacheTest, AdmitsOnlyWhatCanBePaidFor) {
  std::map<UnitKey, double> worth{{1, 200}, {2, 300}};
  auto cache = make(2, std::make_unique<SetWorth>(worth, 200));
  step(cache, {unit(1), unit(2)});
  EXPECT_THAT(admitted(plan_, wanted_), ElementsAre(2));
  EXPECT_EQ(cache.counters().refused_units, 1U);
}

TEST_F(ResidentCacheTest, AdoptsWhatIsThereAlreadyWithoutARefill) {
  auto cache = make(2);
  std::vector<UnitKey> evicted;
  EXPECT_TRUE(cache.adopt(7, 1, evicted));
  EXPECT_TRUE(cache.adopt(8, 1, evicted));
  EXPECT_FALSE(cache.adopt(9, 3, evicted)) << "larger than the cache";
  EXPECT_THAT(evicted, IsEmpty());
  EXPECT_TRUE(cache.adopt(9, 1, evicted));
  EXPECT_THAT(evicted, ElementsAre(7));
  step(cache, {unit(8), unit(9)});
  EXPECT_THAT(plan_.hit, ElementsAre(1, 1));
  EXPECT_EQ(cache.counters().refill_rows, 0U);
}

TEST_F(ResidentCacheTest, EvictsNothingForAUnitThatCannotFit) {
  auto cache = make(4);
  step(cache, {unit(1, 2), unit(2, 2)});
  step(cache, {unit(1, 2), unit(3, 3)});  // 1 stays, so 3 slots cannot be made
  EXPECT_THAT(plan_.evicted, IsEmpty());
  EXPECT_THAT(plan_.admitted, IsEmpty());
  step(cache, {unit(3, 3), unit(4, 5), unit(5, 1)});  // 4 never fits, 5 still does
  EXPECT_THAT(plan_.evicted, ElementsAre(1, 2));
  EXPECT_THAT(admitted(plan_, wanted_), ElementsAre(3, 5));
  EXPECT_EQ(cache.used_slots(), 4U);
}

TEST_F(ResidentCacheTest, EvictsNothingForAUnitWorthLessThanItsVictims) {
  std::map<UnitKey, double> worth{{1, 10}, {2, 100}, {3, 60}};
  auto cache = make(4, std::make_unique<SetWorth>(worth));
  const WantedUnit large{.unit = 3, .rows_wanted = 10, .slots = 4, .refill_rows = 1};
  std::vector<UnitKey> evicted;
  ASSERT_TRUE(cache.adopt(1, 2, evicted) && cache.adopt(2, 2, evicted));
  // One unit is worth too much, or the two together are.
  for (const auto& [first, second] : {std::pair{10, 100}, {50, 50}}) {
    worth[1] = first;
    worth[2] = second;
    step(cache, {large});
    EXPECT_THAT(plan_.evicted, IsEmpty());
    EXPECT_THAT(plan_.admitted, IsEmpty());
    EXPECT_TRUE(cache.resident(1) && cache.resident(2));
    EXPECT_EQ(cache.used_slots(), 4U);
    EXPECT_EQ(cache.counters().evicted_units, 0U);
  }
  worth[1] = 9;
  step(cache, {large});
  EXPECT_THAT(plan_.evicted, UnorderedElementsAre(1, 2)) << "59 for 60, less a row";
  EXPECT_TRUE(cache.resident(3));
}

TEST_F(ResidentCacheTest, WhatIsSparedForAnotherGoesInItsTurn) {
  std::map<UnitKey, double> worth{{1, 10}, {2, 100}, {3, 60}, {4, 1000}};
  auto cache = make(4, std::make_unique<SetWorth>(worth));
  std::vector<UnitKey> evicted;
  ASSERT_TRUE(cache.adopt(1, 2, evicted) && cache.adopt(2, 2, evicted));
  step(cache, {{.unit = 3, .rows_wanted = 10, .slots = 4, .refill_rows = 1}});  // 1 alone may go
  ASSERT_THAT(plan_.evicted, IsEmpty());
  step(cache, {unit(4)});
  EXPECT_THAT(plan_.evicted, ElementsAre(1)) << "still the first that came";
}

TEST_F(ResidentCacheTest, AsksNoMoreOnceNothingIsWorthSoLittle) {
  std::map<UnitKey, double> worth;
  for (UnitKey key = 0; key < 200; ++key) worth[key] = key < 100 ? 1000 : 500;
  auto cache = make(100, std::make_unique<SetWorth>(worth));
  std::vector<WantedUnit> residents;
  std::vector<WantedUnit> newcomers;
  for (UnitKey key = 0; key < 100; ++key) residents.push_back(unit(key));
  for (UnitKey key = 100; key < 200; ++key) newcomers.push_back(unit(key));
  step(cache, residents);
  victims_asked_ = 0;
  step(cache, newcomers);
  EXPECT_EQ(victims_asked_, 1U);
  EXPECT_EQ(cache.counters().no_room_units, 100U);
  worth[150] = 600;  // the next step asks anew
  worth[7] = 400;
  step(cache, newcomers);
  EXPECT_THAT(plan_.evicted, ElementsAre(7));
  EXPECT_TRUE(cache.resident(150));
}

TEST_F(ResidentCacheTest, DropForgetsResidencyAndForgetEverything) {
  std::map<UnitKey, double> worth{{1, 500}, {2, 500}};
  auto cache = make(2, std::make_unique<SetWorth>(worth));
  step(cache, {unit(1), unit(2)});
  cache.drop(1);
  EXPECT_THAT(forgotten_, IsEmpty()) << "the policy may remember it";
  cache.forget(2);
  EXPECT_THAT(forgotten_, ElementsAre(2));
  EXPECT_FALSE(cache.resident(1));
  EXPECT_FALSE(cache.resident(2));
  EXPECT_EQ(cache.used_slots(), 0U);
  EXPECT_TRUE(worth.contains(1));
  EXPECT_FALSE(worth.contains(2));
  cache.drop(1);  // nothing to drop
  step(cache, {unit(1)});
  EXPECT_THAT(plan_.hit, ElementsAre(0));
}

TEST_F(ResidentCacheTest, DisplacesOthersForAUnitThatHasNoRoomInMemory) {
  std::map<UnitKey, double> worth{{1, 300}, {2, 200}, {3, 328}, {4, 200}, {5, 900}};
  auto cache = make(100, std::make_unique<SetWorth>(worth));
  step(cache, {unit(1), unit(2)});
  std::vector<UnitKey> evicted;
  step(cache, {unit(3)});
  ASSERT_THAT(plan_.admitted, ElementsAre(0)) << "the cache thinks it has room";
  EXPECT_TRUE(cache.displace_for(wanted_[0], evicted));
  EXPECT_THAT(evicted, ElementsAre(2)) << "not the first, which is worth too much";
  EXPECT_TRUE(cache.resident(3));
  EXPECT_EQ(cache.used_slots(), 2U);
  step(cache, {unit(4)});
  EXPECT_FALSE(cache.displace_for(wanted_[0], evicted)) << "72 is what it is worth beyond its rows";
  EXPECT_THAT(evicted, ElementsAre(2));
  EXPECT_FALSE(cache.resident(4));
  step(cache, {unit(1), unit(3), unit(5)});
  EXPECT_FALSE(cache.displace_for(wanted_[2], evicted)) << "the step wants all others";
  EXPECT_TRUE(cache.resident(1) && cache.resident(3));
  EXPECT_EQ(cache.used_slots(), 2U);
}

TEST_F(ResidentCacheTest, CountsNoUnitThatFoundNoRoom) {
  auto cache = make(100);
  std::vector<UnitKey> evicted;
  step(cache, {unit(1)});
  ASSERT_FALSE(cache.displace_for(wanted_[0], evicted));
  EXPECT_EQ(cache.counters().admitted_units, 0U);
  EXPECT_EQ(cache.counters().refill_rows, 0U);
  EXPECT_EQ(cache.counters().no_room_units, 1U);
}

TEST_F(ResidentCacheTest, DisplacesByWhatUnitsAreWorthWhenTheStepIsPlanned) {
  std::map<UnitKey, double> worth{{1, 500}, {2, 600}, {3, 560}};
  auto admission = std::make_unique<SetWorth>(worth);
  SetWorth& fading = *admission;
  auto cache = make(3, std::move(admission));
  step(cache, {unit(1)});
  std::vector<UnitKey> evicted;
  fading.decay = 0.5;
  step(cache, {unit(2, 3), {.unit = 3, .rows_wanted = 10, .refill_rows = 1}});
  ASSERT_THAT(admitted(plan_, wanted_), ElementsAre(3)) << "500 is more than 600 less a refill";
  EXPECT_TRUE(cache.displace_for(wanted_[1], evicted));
  EXPECT_THAT(evicted, ElementsAre(1)) << "250 by now, for 280 less a row";
}

TEST_F(ResidentCacheTest, GetsBackWhatAUnitHasPaidThatFoundNoRoom) {
  std::map<UnitKey, double> worth{{1, 500}};
  auto cache = make(100, std::make_unique<SetWorth>(worth, /*purse=*/128));
  std::vector<UnitKey> evicted;
  for (int i = 0; i < 3; ++i) {
    step(cache, {unit(1)});
    ASSERT_THAT(plan_.admitted, ElementsAre(0)) << i;
    EXPECT_FALSE(cache.displace_for(wanted_[0], evicted));
  }
}

TEST_F(ResidentCacheTest, ShrinksUnderPressure) {
  auto cache = make(4);
  step(cache, {unit(1), unit(2, 2), unit(3)});
  std::vector<UnitKey> evicted;
  cache.resize(1, evicted);
  EXPECT_THAT(evicted, ElementsAre(1, 2));
  EXPECT_EQ(cache.used_slots(), 1U);
  cache.resize(0, evicted);
  step(cache, {unit(3)});
  EXPECT_THAT(plan_.admitted, IsEmpty());
}

/// Asks for random steps. `worth`: what the cache's admission goes by; null where all is admitted.
void ResidentCacheTest::fuzz(ResidentCache& cache, std::map<UnitKey, double>* worth) {
  const std::uint64_t seed = fuzz_seed(9);
  Rng rng(seed);
  std::map<UnitKey, std::uint32_t> model;  // resident -> slots
  for (std::uint64_t step = 0; step < fuzz_steps() / 10; ++step) {
    SCOPED_TRACE(replay(seed, step));
    touched_.clear();
    std::set<UnitKey> keys;
    while (keys.size() < rng.below(30)) keys.insert(static_cast<UnitKey>(rng.below(80)));
    wanted_.clear();
    for (const UnitKey key : keys) {
      wanted_.push_back(unit(key, 1 + key % 4));
      // In small steps some units come for nothing.
      if (keys.size() < 8 && rng.below(3) == 0) wanted_.back().refill_rows = 0;
    }
    if (worth != nullptr) {
      for (UnitKey key = 0; key < 80; ++key) (*worth)[key] = static_cast<double>(rng.below(700));
    }
    cache.plan_step(wanted_, plan_);
    if (worth != nullptr) expect_worth_it(*worth);
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      ASSERT_EQ(plan_.hit[i] != 0, model.contains(wanted_[i].unit));
    }
    for (const UnitKey key : plan_.evicted) {
      ASSERT_FALSE(keys.contains(key));
      ASSERT_EQ(model.erase(key), 1U);
    }
    for (const std::uint32_t index : plan_.admitted) {
      ASSERT_TRUE(model.emplace(wanted_[index].unit, wanted_[index].slots).second);
    }
    for (const std::uint32_t index : plan_.admitted) {
      if (rng.below(8) != 0) continue;
      std::vector<UnitKey> evicted;
      if (!cache.displace_for(wanted_[index], evicted)) {
        ASSERT_TRUE(evicted.empty());
        evicted.push_back(wanted_[index].unit);
        keys.erase(wanted_[index].unit);
      }
      for (const UnitKey key : evicted) {
        ASSERT_FALSE(keys.contains(key));
        ASSERT_EQ(model.erase(key), 1U);
      }
    }
    if (rng.below(20) == 0) {
      const auto key = static_cast<UnitKey>(rng.below(80));
      cache.drop(key);
      model.erase(key);
    }
    std::size_t slots = 0;
    for (const auto& [key, size] : model) slots += size;
    ASSERT_EQ(cache.used_slots(), slots);
    ASSERT_LE(slots, cache.capacity_slots());
    ASSERT_EQ(cache.resident_units(), model.size());
  }
}

/// Units that the plan admits save no less than they cost, and no less than the units that go for
/// them would have saved.
void ResidentCacheTest::expect_worth_it(const std::map<UnitKey, double>& worth) const {
  double gain = 0;
  bool none_is_free = true;
  for (const std::uint32_t index : plan_.admitted) {
    const WantedUnit& its = wanted_[index];
    const double spare = worth.at(its.unit) - static_cast<double>(its.refill_rows);
    ASSERT_GE(spare, 0) << its.unit;
    gain += spare;
    none_is_free = none_is_free && its.refill_rows > 0;
  }
  // For a unit promoted at no cost, other such units of any worth may be evicted.
  if (!none_is_free) return;
  for (const UnitKey unit : plan_.evicted) gain -= worth.at(unit);
  ASSERT_GE(gain, 0);
}

TEST_F(ResidentCacheTest, KeepsItsInvariantsUnderRandomSteps) {
  auto cache = make(40);
  fuzz(cache);
}

TEST_F(ResidentCacheTest, KeepsItsInvariantsWhereNotAllIsWorthItsRefill) {
  for (const std::uint32_t purse : {20'000U, 1'000'000'000U}) {
    std::map<UnitKey, double> worth;
    auto cache = make(40, std::make_unique<SetWorth>(worth, purse));
    fuzz(cache, &worth);
    const UnitCounters& counted = cache.counters();
    EXPECT_GT(counted.refused_units, 0U);
    EXPECT_GT(counted.no_room_units, 0U);
    EXPECT_GT(counted.admitted_units, 0U);
    EXPECT_GT(counted.evicted_units, 0U);
  }
}

TEST(ResidentCache, RefusesToBeMadeWithoutAPolicyOrKeys) {
  EXPECT_FALSE(ResidentCache::create(4, 10, nullptr, nullptr));
  EXPECT_FALSE(ResidentCache::create(4, 0, std::make_unique<Fifo>(), nullptr));
}

}  // namespace
}  // namespace terrace::policies
