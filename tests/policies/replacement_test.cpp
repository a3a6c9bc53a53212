#include "terrace/policies/replacement.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "contract/fuzz.hpp"
#include "policies/replacement_models.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::policies {
namespace {

constexpr auto anything = [](UnitKey /*key*/) { return true; };

/// A future in which every key comes again, or not, as a hash of the key and the step says.
class MadeUpFuture final : public Foresight {
 public:
  [[nodiscard]] std::uint64_t next_step(UnitKey key) const noexcept override {
    Rng rng(key, {step});
    return rng.below(8) == 0 ? never : step + 1 + rng.below(20);
  }
  std::uint64_t step = 0;
};

/// A row of the table with options that bring all of the policy to light.
struct PolicyCase {
  ReplacementEntry entry;
  std::string name;
  ReplacementOptions options = {};
};

std::vector<PolicyCase> policy_cases() {
  std::vector<PolicyCase> cases;
  for (const ReplacementEntry& entry : replacement_policies()) {
    cases.push_back({entry, std::string(entry.name)});
  }
  const auto row = [](std::string_view name) {
    return *std::ranges::find(replacement_policies(), name, &ReplacementEntry::name);
  };
  cases.push_back({row("lfu"), "lfu_with_half_life", {.lfu_half_life = 7}});
  cases.push_back({row("last_steps"), "last_3_steps", {.last_steps = 3}});
  return cases;
}

class EachReplacementPolicy : public testing::TestWithParam<PolicyCase> {
 protected:
  static constexpr CacheExtent extent{.keys = 64, .slots = 24};

  std::unique_ptr<ReplacementPolicy> make() const {
    auto policy = GetParam().entry.make(options_);
    policy->resize(extent);
    return policy;
  }

  MadeUpFuture future_;
  ReplacementOptions options_ = [this] {
    ReplacementOptions options = GetParam().options;
    options.foresight = &future_;
    return options;
  }();
};

/// A policy and its model, which must answer alike.
class Pair {
 public:
  Pair(std::unique_ptr<ReplacementPolicy> policy, std::unique_ptr<ReplacementModel> model)
      : policy_(std::move(policy)), model_(std::move(model)) {}

  void step(const std::vector<UnitKey>& wanted, std::size_t slots) {
    std::vector<UnitKey> hits;
    std::vector<UnitKey> misses;
    for (const UnitKey key : wanted) (tracked_.contains(key) ? hits : misses).push_back(key);
    policy_->touch(hits);
    model_->touch(hits);
    policy_->miss(misses);
    model_->miss(misses);
    for (const UnitKey key : misses) {
      if (tracked_.size() == slots && !make_room(key, wanted)) continue;
      policy_->track(key, 1);
      model_->track(key);
      tracked_.insert(key);
    }
    for (;;) {
      const auto old = policy_->expire();
      ASSERT_EQ(old, model_->expire());
      if (!old) break;
      ASSERT_EQ(tracked_.erase(*old), 1U);
    }
    ASSERT_EQ(policy_->size(), tracked_.size());
  }

  /// Any key, tracked or not.
  void forget(UnitKey key) {
    policy_->forget(key);
    model_->forget(key);
    tracked_.erase(key);
    ASSERT_EQ(policy_->size(), tracked_.size());
  }

  void shrink_by_one() {
    const auto victim = policy_->evict(no_unit, anything);
    ASSERT_EQ(victim, model_->evict(no_unit, anything));
    ASSERT_EQ(victim.has_value(), !tracked_.empty());
    if (victim) tracked_.erase(*victim);
  }

 private:
  bool make_room(UnitKey incoming, const std::vector<UnitKey>& wanted) {
    const auto allowed = [&](UnitKey key) { return std::ranges::count(wanted, key) == 0; };
    const auto victim = policy_->evict(incoming, allowed);
    EXPECT_EQ(victim, model_->evict(incoming, allowed));
    if (!victim) return false;
    EXPECT_TRUE(allowed(*victim));
    EXPECT_EQ(tracked_.erase(*victim), 1U);
    return true;
  }

  std::unique_ptr<ReplacementPolicy> policy_;
  std::unique_ptr<ReplacementModel> model_;
  std::set<UnitKey> tracked_;
};

TEST_P(EachReplacementPolicy, AgreesWithAPlainModel) {
  const std::uint64_t seed = fuzz_seed(1);
  Rng rng(seed);
  const std::string name(GetParam().entry.name);
  auto model = make_replacement_model(name, extent.slots, options_);
  ASSERT_NE(model, nullptr) << name << " has no model in replacement_models.cpp";
  Pair pair(make(), std::move(model));
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    future_.step = step;
    // Mostly near a place that drifts, now and then anywhere: hits, ghosts and newcomers alike.
    std::vector<UnitKey> wanted;
    const std::uint64_t place = step / 50;
    for (std::uint64_t i = rng.below(12); i > 0; --i) {
      const std::uint64_t at = rng.below(4) == 0 ? rng.below(64) : place + rng.below(20);
      const auto key = static_cast<UnitKey>(at % 64);
      if (std::ranges::count(wanted, key) == 0) wanted.push_back(key);
    }
    pair.step(wanted, extent.slots);
    if (rng.below(20) == 0) pair.forget(static_cast<UnitKey>(rng.below(64)));
    if (rng.below(50) == 0) pair.shrink_by_one();
    if (HasFailure()) FAIL() << replay(seed, step);
  }
}

TEST_P(EachReplacementPolicy, EvictsNothingWhereNothingIsEvictable) {
  const auto policy = make();
  EXPECT_EQ(policy->evict(no_unit, anything), std::nullopt);
  policy->touch({});
  policy->track(5, 1);
  EXPECT_EQ(policy->evict(no_unit, [](UnitKey) { return false; }), std::nullopt);
  EXPECT_EQ(policy->size(), 1U);
  EXPECT_EQ(policy->evict(no_unit, anything), 5U);
  EXPECT_EQ(policy->size(), 0U);
}

TEST_P(EachReplacementPolicy, FindsTheOneUnitThatMayGoWhateverItsUse) {
  for (UnitKey only = 0; only < extent.slots; ++only) {
    const auto policy = make();
    std::vector<UnitKey> all;
    policy->touch({});
    for (UnitKey key = 0; key < extent.slots; ++key) {
      policy->track(key, 1);
      all.push_back(key);
    }
    for (int step = 0; step < 5; ++step) policy->touch(all);
    EXPECT_EQ(policy->evict(no_unit, [&](UnitKey key) { return key == only; }), only);
  }
}

TEST_P(EachReplacementPolicy, KeepsItsPromisesWithUnitsOfManySizes) {
  Rng rng(7);
  const auto policy = make();
  std::vector<std::uint32_t> resident(extent.keys);
  std::size_t used = 0;
  for (int step = 0; step < 5'000; ++step) {
    future_.step = static_cast<std::uint64_t>(step);
    const auto key = static_cast<UnitKey>(rng.below(extent.keys));
    const std::uint32_t slots = 1 + key % 5;
    if (resident[key] != 0) {
      policy->touch({&key, 1});
    } else {
      policy->touch({});
      policy->miss({&key, 1});
      while (used + slots > extent.slots) {
        const auto victim = policy->evict(no_unit, anything);
        ASSERT_TRUE(victim.has_value());
        ASSERT_NE(resident[*victim], 0U);
        used -= std::exchange(resident[*victim], 0);
      }
      policy->track(key, slots);
      used += resident[key] = slots;
    }
    while (const auto old = policy->expire()) used -= std::exchange(resident[*old], 0);
    ASSERT_EQ(policy->size(),
              extent.keys - static_cast<std::size_t>(std::ranges::count(resident, 0U)));
  }
}

INSTANTIATE_TEST_SUITE_P(Table, EachReplacementPolicy, testing::ValuesIn(policy_cases()),
                         [](const auto& each) { return each.param.name; });

TEST(LastSteps, KeepsWhatTheLastStepsWantedAndNoMore) {
  const auto policy = make_replacement_policy("last_steps", {.last_steps = 2}).value();
  policy->resize({.keys = 10, .slots = 10});
  policy->touch({});
  policy->track(1, 1);
  EXPECT_EQ(policy->expire(), std::nullopt);
  policy->touch({});
  EXPECT_EQ(policy->expire(), std::nullopt);
  policy->touch({});
  EXPECT_EQ(policy->expire(), 1U);
}

TEST(LfuWithHalfLife, LetsGoOfWhatWasHotLongAgo) {
  for (const std::size_t half_life : {0U, 4U}) {
    const auto policy = make_replacement_policy("lfu", {.lfu_half_life = half_life}).value();
    policy->resize({.keys = 2, .slots = 2});
    const UnitKey hot = 0;
    const UnitKey young = 1;
    policy->touch({});
    policy->track(hot, 1);
    for (int step = 0; step < 100; ++step) policy->touch({&hot, 1});
    policy->track(young, 1);
    for (int step = 0; step < 40; ++step) policy->touch({&young, 1});
    EXPECT_EQ(policy->evict(no_unit, anything), half_life == 0 ? young : hot);
  }
}

TEST(MakeReplacementPolicy, NamesTheNearestAndAllOthers) {
  const auto made = make_replacement_policy("s3-fifo");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()),
              testing::AllOf(testing::HasSubstr("did you mean s3fifo?"),
                             testing::HasSubstr("lru, lfu, sieve")));
  EXPECT_THAT(std::string(make_replacement_policy("belady").error().message()),
              testing::HasSubstr("recorded traces"));
  EXPECT_FALSE(make_replacement_policy("last_steps", {.last_steps = 0}).has_value());
}

}  // namespace
}  // namespace terrace::policies
