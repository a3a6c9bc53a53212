#include "terrace/policies/replacement.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "contract/fuzz.hpp"
#include "policies/replacement_models.hpp"
#include "terrace/core/config.hpp"
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
  cases.push_back({row("lrfu"), "lrfu_of_one_step", {.lrfu_half_life = 1}});
  cases.push_back({row("lrfu"), "lrfu_of_many_steps", {.lrfu_half_life = 256}});
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

using Answer = std::optional<UnitKey>;

std::string to_string(const Answer& answer) {
  return answer ? std::to_string(*answer) : std::string("nothing");
}

/// A policy and a model, asked the same until they answer differently.
class Pair {
 public:
  Pair(std::unique_ptr<ReplacementPolicy> policy, std::unique_ptr<ReplacementModel> model,
       const CacheExtent& extent)
      : extent_(extent), policy_(std::move(policy)), model_(std::move(model)) {}

  /// The first answer in which they differ; empty while they agree.
  [[nodiscard]] const std::string& difference() const noexcept { return difference_; }

  /// A step of the resident cache; a key takes `slots(key)` slots, and what goes for another may be
  /// worth `spare` in all.
  template <typename Slots, typename Worth>
  void step(const std::vector<UnitKey>& wanted, const Slots& slots, const Worth& worth,
            std::uint64_t spare) {
    std::vector<UnitKey> hits;
    std::vector<UnitKey> misses;
    for (const UnitKey key : wanted) (tracked_.contains(key) ? hits : misses).push_back(key);
    policy_->touch(hits);
    model_->touch(hits);
    policy_->miss(misses);
    model_->miss(misses);
    const auto allowed = [&](UnitKey key) { return std::ranges::count(wanted, key) == 0; };
    for (const UnitKey key : misses) {
      const auto worth_it = [&](UnitKey each, std::span<const UnitKey> chosen) {
        std::uint64_t given_up = worth(each);
        for (const UnitKey other : chosen) given_up += worth(other);
        return allowed(each) && given_up <= spare;
      };
      if (!make_room(key, slots(key), worth_it)) continue;
      policy_->track(key, slots(key));
      model_->track(key, slots(key));
      tracked_[key] = slots(key);
    }
    while (const Answer old = agreed("expires", policy_->expire(), model_->expire())) {
      tracked_.erase(*old);
    }
    compare_sizes();
  }

  /// Between two steps: a unit that is not tracked becomes resident without having been missed.
  void adopt(UnitKey key, std::uint32_t slots) {
    if (tracked_.contains(key) || !make_room(key, slots, any_victim)) return;
    policy_->track(key, slots);
    model_->track(key, slots);
    tracked_[key] = slots;
    compare_sizes();
  }

  /// Any key, tracked or not.
  void forget(UnitKey key) {
    policy_->forget(key);
    model_->forget(key);
    tracked_.erase(key);
    compare_sizes();
  }

  /// A copy is lost between two steps, independent of the policy's choice.
  void drop(UnitKey key) {
    if (tracked_.contains(key)) evict(key);
    compare_sizes();
  }

  void shrink_by_one() {
    const Answer victim = choose("shrinks by", no_unit, anything);
    if (victim.has_value() == tracked_.empty()) differ("shrinks by " + to_string(victim));
    if (victim) evict(*victim);
  }

  void resize(std::size_t slots) {
    extent_.slots = slots;
    policy_->resize(extent_);
    model_->resize(slots);
    if (!make_room(no_unit, 0, any_victim)) differ("does not shrink");
  }

 private:
  static constexpr auto any_victim = [](UnitKey, std::span<const UnitKey>) { return true; };

  /// Evicts all that must go for a unit, or nothing: each victim is chosen before the first goes.
  template <typename Allowed>
  bool make_room(UnitKey incoming, std::size_t slots, const Allowed& allowed) {
    std::size_t used = slots;
    for (const auto& [key, its] : tracked_) used += its;
    std::vector<UnitKey> chosen;
    const auto may_go = [&](UnitKey key) {
      return std::ranges::count(chosen, key) == 0 && allowed(key, chosen);
    };
    while (used > extent_.slots) {
      const Answer victim = choose("evicts", incoming, may_go);
      if (!victim) return false;
      if (!may_go(*victim) || !tracked_.contains(*victim)) {
        differ("evicts what may not go");
        return false;
      }
      used -= tracked_[*victim];
      chosen.push_back(*victim);
    }
    for (const UnitKey key : chosen) evict(key);
    return true;
  }

  template <typename Allowed>
  Answer choose(const char* what, UnitKey incoming, const Allowed& allowed) {
    return agreed(what, policy_->choose_victim(incoming, allowed),
                  model_->choose_victim(incoming, allowed));
  }

  void evict(UnitKey key) {
    policy_->evict(key);
    model_->evict(key);
    tracked_.erase(key);
  }

  /// Returns the answer that both give, or nothing when they differ.
  Answer agreed(const char* what, const Answer& policy, const Answer& model) {
    if (policy == model) return policy;
    differ(std::string(what) + " " + to_string(policy) + ", the model " + to_string(model));
    return std::nullopt;
  }

  void differ(const std::string& how) {
    if (difference_.empty()) difference_ = how;
  }

  void compare_sizes() {
    if (policy_->size() != tracked_.size()) {
      differ("tracks " + std::to_string(policy_->size()) + " of " +
             std::to_string(tracked_.size()));
    }
  }

  CacheExtent extent_;
  std::unique_ptr<ReplacementPolicy> policy_;
  std::unique_ptr<ReplacementModel> model_;
  std::map<UnitKey, std::uint32_t> tracked_;
  std::string difference_;
};

/// Mostly near a place that drifts, now and then anywhere: hits, ghosts and newcomers alike.
std::vector<UnitKey> wanted_in(std::uint64_t step, Rng& rng) {
  std::vector<UnitKey> wanted;
  const std::uint64_t place = step / 50;
  for (std::uint64_t i = rng.below(12); i > 0; --i) {
    const std::uint64_t at = rng.below(4) == 0 ? rng.below(64) : place + rng.below(20);
    const auto key = static_cast<UnitKey>(at % 64);
    if (std::ranges::count(wanted, key) == 0) wanted.push_back(key);
  }
  return wanted;
}

enum class Units : std::uint8_t { of_one_slot, of_many_sizes };

/// Asks a pair for so many steps, and returns how they came to differ, if they did.
std::string run(Pair& pair, MadeUpFuture& future, Units units, std::uint64_t steps) {
  const std::uint64_t seed = fuzz_seed(1);
  Rng rng(seed);
  const bool sized = units == Units::of_many_sizes;
  const auto slots = [&](UnitKey key) { return sized ? 1 + key % 3 : 1; };
  for (std::uint64_t step = 0; step < steps; ++step) {
    future.step = step;
    // In every third step some units, or several of them together, are worth too much to go.
    const std::uint64_t spare = rng.below(3) == 0 ? rng.below(12) : UINT64_MAX;
    const auto worth = [step](UnitKey key) { return Rng(key, {step / 4}).below(8); };
    pair.step(wanted_in(step, rng), slots, worth, spare);
    if (rng.below(20) == 0) pair.forget(static_cast<UnitKey>(rng.below(64)));
    if (rng.below(20) == 0) pair.drop(static_cast<UnitKey>(rng.below(64)));
    if (rng.below(50) == 0) pair.shrink_by_one();
    if (rng.below(10) == 0) {
      const auto key = static_cast<UnitKey>(rng.below(64));
      pair.adopt(key, slots(key));
    }
    if (sized && rng.below(50) == 0) pair.resize(8 + rng.below(32));
    if (!pair.difference().empty()) return pair.difference() + "; " + replay(seed, step);
  }
  return {};
}

TEST_P(EachReplacementPolicy, AgreesWithAPlainModel) {
  const std::string name(GetParam().entry.name);
  for (const Units units : {Units::of_one_slot, Units::of_many_sizes}) {
    auto model = make_replacement_model(name, extent.slots, options_);
    ASSERT_NE(model, nullptr) << name << " has no model in replacement_models.cpp";
    Pair pair(make(), std::move(model), extent);
    ASSERT_EQ(run(pair, future_, units, fuzz_steps()), "") << name;
  }
}

TEST_P(EachReplacementPolicy, DiffersFromTheModelOfEveryOtherPolicy) {
  // Were it not so, the fuzzer could not tell a wrong policy from a right one.
  for (const PolicyCase& other : policy_cases()) {
    if (other.name == GetParam().name) continue;
    ReplacementOptions options = other.options;
    options.foresight = &future_;
    for (const Units units : {Units::of_one_slot, Units::of_many_sizes}) {
      Pair pair(make(),
                make_replacement_model(std::string(other.entry.name), extent.slots, options),
                extent);
      EXPECT_NE(run(pair, future_, units, 5'000), "") << "the model of " << other.name;
    }
  }
}

TEST_P(EachReplacementPolicy, EvictsNothingWhereNothingIsEvictable) {
  const auto policy = make();
  EXPECT_EQ(policy->choose_victim(no_unit, anything), std::nullopt);
  policy->touch({});
  policy->track(5, 1);
  EXPECT_EQ(policy->choose_victim(no_unit, [](UnitKey) { return false; }), std::nullopt);
  EXPECT_EQ(policy->choose_victim(no_unit, anything), 5U);
  EXPECT_EQ(policy->size(), 1U);
  policy->evict(5);
  EXPECT_EQ(policy->size(), 0U);
}

/// Returns the evicted keys, in order, when a policy that has seen some steps shrinks to nothing.
/// If `in_vain`, each step first asked for more victims than may be evicted.
std::vector<UnitKey> order_of_going(ReplacementPolicy& policy, MadeUpFuture& future, bool in_vain) {
  Rng rng(3);
  std::vector<UnitKey> tracked;
  for (std::uint64_t step = 0; step < 100; ++step) {
    future.step = step;
    const std::vector<UnitKey> wanted = wanted_in(step, rng);
    std::vector<UnitKey> hits;
    std::vector<UnitKey> misses;
    for (const UnitKey key : wanted) {
      (std::ranges::count(tracked, key) != 0 ? hits : misses).push_back(key);
    }
    policy.touch(hits);
    policy.miss(misses);
    for (const UnitKey key : misses) {
      const auto allowed = [&](UnitKey each) { return std::ranges::count(wanted, each) == 0; };
      std::vector<UnitKey> chosen;
      while (in_vain) {
        const Answer victim = policy.choose_victim(key, [&](UnitKey each) {
          return allowed(each) && std::ranges::count(chosen, each) == 0;
        });
        if (!victim) break;
        chosen.push_back(*victim);
      }
      if (tracked.size() == 24) {
        const Answer victim = policy.choose_victim(key, allowed);
        if (!victim) continue;
        policy.evict(*victim);
        std::erase(tracked, *victim);
      }
      policy.track(key, 1);
      tracked.push_back(key);
    }
    while (const Answer old = policy.expire()) std::erase(tracked, *old);
  }
  std::vector<UnitKey> order;
  while (const Answer victim = policy.choose_victim(no_unit, anything)) {
    policy.evict(*victim);
    order.push_back(*victim);
  }
  return order;
}

TEST_P(EachReplacementPolicy, RemembersNothingOfVictimsThatStayed) {
  // The others' searches move hands and queues, and say so.
  for (const std::string_view moved : {"sieve", "s3fifo", "wtinylfu"}) {
    if (GetParam().entry.name == moved) return;
  }
  const std::vector<UnitKey> order = order_of_going(*make(), future_, false);
  EXPECT_THAT(order,
              testing::SizeIs(testing::Gt(GetParam().entry.name == "last_steps" ? 2U : 20U)));
  EXPECT_EQ(order_of_going(*make(), future_, true), order);
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
    EXPECT_EQ(policy->choose_victim(no_unit, [&](UnitKey key) { return key == only; }), only);
  }
}

TEST_P(EachReplacementPolicy, TakesMemoryForItsKeysWhateverTheCapacity) {
  constexpr std::size_t boundless = std::size_t{1} << 40;
  const auto policy = make();
  std::vector<UnitKey> all;
  for (const std::size_t keys : {64U, 256U}) {
    policy->resize({.keys = keys, .slots = boundless});
    EXPECT_LE(policy->state_bytes(), 128 * keys);
    // Each of them may be wanted as often as no other.
    policy->touch(all);
    for (auto key = static_cast<UnitKey>(all.size()); key < keys; ++key) {
      policy->track(key, 1);
      all.push_back(key);
      policy->touch(all);
    }
    EXPECT_EQ(policy->size(), keys);
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
        const auto victim = policy->choose_victim(no_unit, anything);
        ASSERT_TRUE(victim.has_value());
        ASSERT_NE(resident[*victim], 0U);
        policy->evict(*victim);
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
    EXPECT_EQ(policy->choose_victim(no_unit, anything), half_life == 0 ? young : hot);
  }
}

TEST(Lrfu, WeighsUsesByAgeAndRemembersWhatWent) {
  const auto policy = make_replacement_policy("lrfu", {.lrfu_half_life = 4}).value();
  policy->resize({.keys = 4, .slots = 2});
  const UnitKey often = 0;
  const UnitKey lately = 1;
  const UnitKey back = 2;
  const UnitKey once = 3;
  policy->touch({});
  policy->miss(std::array{often, back});
  policy->track(often, 1);
  for (int step = 0; step < 3; ++step) {
    policy->touch({&often, 1});
    policy->miss({&back, 1});
  }
  policy->touch({});
  policy->miss(std::array{lately, once});
  policy->track(lately, 1);
  // 3.2 uses halved by age are more than one just now, but not eight steps later.
  EXPECT_EQ(policy->choose_victim(no_unit, anything), lately);
  // Uses count, resident or not: what was wanted as often is let in, what was wanted once is not.
  const auto only_often = [&](UnitKey key) { return key == often; };
  EXPECT_EQ(policy->choose_victim(back, only_often), often);
  EXPECT_EQ(policy->choose_victim(once, only_often), std::nullopt);
  for (int step = 0; step < 8; ++step) policy->touch({});
  policy->touch({&lately, 1});
  EXPECT_EQ(policy->choose_victim(no_unit, anything), often);
}

TEST(Lrfu, TracksUnitsThatNoStepHasWantedYet) {
  const auto policy = make_replacement_policy("lrfu").value();
  policy->resize({.keys = 3, .slots = 1});
  const UnitKey once = 0;
  policy->touch({});
  policy->miss({&once, 1});
  policy->track(once, 1);
  // A block that leaves the window, in a full cache.
  EXPECT_EQ(policy->choose_victim(1, anything), once);
}

TEST(Lrfu, TellsHowOftenFromHowSeldomAtItsLongestHalfLife) {
  const auto policy = make_replacement_policy("lrfu", {.lrfu_half_life = 256}).value();
  policy->resize({.keys = 4, .slots = 4});
  for (std::size_t step = 0; step < 4000; ++step) {
    std::vector<UnitKey> wanted;
    for (UnitKey key = 0; key < 4; ++key) {
      if (step % (key + 1) == 0) wanted.push_back(key);
    }
    policy->touch(step == 0 ? std::span<const UnitKey>{} : wanted);
    if (step > 0) continue;
    policy->miss(wanted);
    for (const UnitKey key : wanted) policy->track(key, 1);
  }
  for (const UnitKey seldom : {3U, 2U, 1U, 0U}) {
    EXPECT_EQ(policy->choose_victim(no_unit, anything), seldom);
    policy->evict(seldom);
  }
}

TEST(ReplacementSettings, AreInTheSchemaOfConfigKeysWithTheSameBounds) {
  for (const ReplacementEntry& entry : replacement_policies()) {
    if (!entry.setting) continue;
    SCOPED_TRACE(entry.setting->key);
    const ConfigKey* const key = find_config_key(entry.setting->key);
    ASSERT_NE(key, nullptr);
    const std::size_t value = ReplacementOptions{}.*entry.setting->value;
    EXPECT_EQ(key->default_text, std::to_string(value));
    EXPECT_EQ(key->low, static_cast<double>(entry.setting->low));
    EXPECT_EQ(key->high, static_cast<double>(entry.setting->high));
    EXPECT_THAT(entry.setting->tried, testing::Contains(value)) << "what it is if nobody says";
    for (const std::size_t wrong : {entry.setting->low - 1, entry.setting->high + 1}) {
      ReplacementOptions options;
      options.*entry.setting->value = wrong;
      EXPECT_FALSE(make_replacement_policy(entry.name, options).has_value()) << wrong;
    }
  }
}

TEST(MakeReplacementPolicy, NamesTheNearestAndAllOthers) {
  const auto made = make_replacement_policy("s3-fifo");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()),
              testing::AllOf(testing::HasSubstr("did you mean s3fifo?"),
                             testing::HasSubstr("known are lru, ")));
  EXPECT_THAT(std::string(make_replacement_policy("belady").error().message()),
              testing::HasSubstr("recorded traces"));
}

}  // namespace
}  // namespace terrace::policies
