#include "terrace/policies/replacement.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "terrace/core/rng.hpp"

namespace terrace::policies {
namespace {

constexpr auto anything = [](UnitKey /*key*/) { return true; };

/// Plain models that say whom a policy must evict, in O(n).
struct Model {
  struct Unit {
    std::uint64_t uses = 0;
    std::uint64_t last = 0;
  };
  std::map<UnitKey, Unit> units;
  std::uint64_t now = 0;

  void track(UnitKey key) { units[key] = {1, ++now}; }
  void touch(UnitKey key) {
    ++units[key].uses;
    units[key].last = ++now;
  }

  template <typename Allowed>
  std::optional<UnitKey> victim(const std::string& policy, Allowed allowed) const {
    std::optional<UnitKey> best;
    for (const auto& [key, unit] : units) {
      if (!allowed(key)) continue;
      const bool better = !best || (policy == "lfu" && unit.uses != units.at(*best).uses
                                        ? unit.uses < units.at(*best).uses
                                        : unit.last < units.at(*best).last);
      if (better) best = key;
    }
    return best;
  }
};

class EachReplacementPolicy : public testing::TestWithParam<ReplacementEntry> {};

TEST_P(EachReplacementPolicy, AgreesWithAPlainModel) {
  const std::string name(GetParam().name);
  const char* const steps_text = std::getenv("TERRACE_FUZZ_STEPS");
  const int steps = steps_text != nullptr ? std::atoi(steps_text) : 200'000;
  const std::uint64_t seed = 1;
  Rng rng(seed);
  const auto policy = GetParam().make();
  Model model;
  for (int step = 0; step < steps; ++step) {
    const auto key = static_cast<UnitKey>(rng.below(64));
    const bool tracked = model.units.contains(key);
    switch (rng.below(8)) {
      case 0:
        if (!tracked) break;
        policy->forget(key);
        model.units.erase(key);
        break;
      case 1: {
        const auto allowed = [&](UnitKey unit) { return unit % 3 != key % 3; };
        const auto expected = model.victim(name, allowed);
        ASSERT_EQ(policy->evict(allowed), expected) << "seed " << seed << " step " << step;
        if (expected) model.units.erase(*expected);
        break;
      }
      default:
        if (tracked) {
          policy->touch(key);
          model.touch(key);
        } else {
          policy->track(key, 1);
          model.track(key);
        }
    }
    ASSERT_EQ(policy->size(), model.units.size());
  }
}

TEST_P(EachReplacementPolicy, EvictsNothingWhereNothingIsEvictable) {
  const auto policy = GetParam().make();
  EXPECT_EQ(policy->evict(anything), std::nullopt);
  policy->track(5, 1);
  EXPECT_EQ(policy->evict([](UnitKey) { return false; }), std::nullopt);
  EXPECT_EQ(policy->size(), 1U);
  EXPECT_EQ(policy->evict(anything), 5U);
  EXPECT_EQ(policy->size(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Table, EachReplacementPolicy, testing::ValuesIn(replacement_policies()),
                         [](const auto& entry) { return std::string(entry.param.name); });

std::size_t hits_on_cycle(ReplacementPolicy& policy, std::size_t keys, std::size_t capacity) {
  std::vector<bool> resident(keys);
  std::size_t hits = 0;
  for (std::size_t i = 0; i < 50 * keys; ++i) {
    const auto key = static_cast<UnitKey>(i % keys);
    if (resident[key]) {
      ++hits;
      policy.touch(key);
      continue;
    }
    if (policy.size() == capacity) resident[*policy.evict(anything)] = false;
    policy.track(key, 1);
    resident[key] = true;
  }
  return hits;
}

TEST(Lru, HitsNothingOnACycleLongerThanItself) {
  const auto lru = make_replacement_policy("lru").value();
  EXPECT_EQ(hits_on_cycle(*lru, 10, 9), 0U);
}

TEST(MakeReplacementPolicy, NamesTheKnownOnes) {
  const auto made = make_replacement_policy("lifo");
  ASSERT_FALSE(made.has_value());
  EXPECT_THAT(std::string(made.error().message()), testing::HasSubstr("lru, lfu"));
}

}  // namespace
}  // namespace terrace::policies
