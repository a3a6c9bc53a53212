// The cost of one touch: steps that want half of the tracked units, in random order. Beside lru
// stands the textbook's list in a hash map.
#include <algorithm>
#include <list>
#include <memory>
#include <numeric>
#include <unordered_map>

#include "cache/questions.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/core/version.hpp"
#include "terrace/policies/replacement.hpp"

namespace terrace::bench {
namespace {

constexpr std::size_t tracked_keys = 4096;
constexpr std::size_t rounds = 16;
constexpr std::size_t victims_compared = 16;

std::vector<std::vector<UnitKey>> made_up_steps(bool quick) {
  std::vector<std::vector<UnitKey>> steps(quick ? 4 : 64);
  Rng rng(1);
  for (auto& step : steps) {
    for (UnitKey key = 0; key < tracked_keys; ++key) {
      if (rng.below(2) == 0) step.push_back(key);
    }
    for (std::size_t i = step.size(); i > 1; --i) std::swap(step[i - 1], step[rng.below(i)]);
  }
  return steps;
}

double touches_of(const std::vector<std::vector<UnitKey>>& steps) {
  std::size_t touches = 0;
  for (const auto& step : steps) touches += step.size();
  return static_cast<double>(touches * rounds);
}

struct Touching {
  std::unique_ptr<ReplacementPolicy> policy;
  std::vector<std::vector<UnitKey>> steps;
  std::size_t runs = 0;

  void run() {
    for (std::size_t round = 0; round < rounds; ++round) {
      for (const auto& step : steps) policy->touch(step);
    }
    ++runs;
  }
};

/// Returns the units that a policy would let go of next, in order.
std::vector<UnitKey> next_to_go(ReplacementPolicy& policy, std::size_t count) {
  std::vector<UnitKey> chosen;
  while (chosen.size() < count) {
    const auto victim = policy.choose_victim(
        no_unit, [&](UnitKey key) { return std::ranges::count(chosen, key) == 0; });
    if (!victim) break;
    chosen.push_back(*victim);
  }
  return chosen;
}

/// A list from old to new and a map into it.
class TextbookLru {
 public:
  explicit TextbookLru(std::vector<std::vector<UnitKey>> steps) : steps_(std::move(steps)) {
    for (UnitKey key = 0; key < tracked_keys; ++key) {
      places_[key] = uses_.insert(uses_.end(), key);
    }
  }
  void run() {
    for (std::size_t round = 0; round < rounds; ++round) {
      for (const auto& step : steps_) {
        for (const UnitKey key : step) uses_.splice(uses_.end(), uses_, places_.find(key)->second);
      }
    }
  }
  /// Returns the units that the list would let go of next, in order.
  [[nodiscard]] std::vector<UnitKey> oldest(std::size_t count) const {
    return {uses_.begin(), std::next(uses_.begin(), static_cast<std::ptrdiff_t>(count))};
  }

 private:
  std::vector<std::vector<UnitKey>> steps_;
  std::list<UnitKey> uses_;
  std::unordered_map<UnitKey, std::list<UnitKey>::iterator> places_;
};

Result<std::unique_ptr<Touching>> make_touching(const policies::ReplacementEntry& entry,
                                                bool quick) {
  auto touching = std::make_unique<Touching>();
  touching->policy = entry.make({});
  touching->policy->resize({.keys = tracked_keys, .slots = tracked_keys});
  touching->policy->touch({});
  for (UnitKey key = 0; key < tracked_keys; ++key) touching->policy->track(key, 1);
  touching->steps = made_up_steps(quick);
  return touching;
}

/// Returns the expected units: for lru those of the textbook's list, which are the same after one
/// run as after many; for the others those of the same policy, touched as often and not timed.
std::vector<UnitKey> expected_to_go(std::string_view policy, Touching& untimed, std::size_t runs) {
  while (untimed.runs < runs) untimed.run();
  if (policy != "lru") return next_to_go(*untimed.policy, victims_compared);
  TextbookLru textbook(untimed.steps);
  textbook.run();
  return textbook.oldest(victims_compared);
}

Question touch_question(const policies::ReplacementEntry& entry) {
  const auto prepare = [entry](bool quick) -> Result<Contest> {
    TERRACE_ASSIGN(std::shared_ptr<Touching> touching, make_touching(entry, quick));
    TERRACE_ASSIGN(std::shared_ptr<Touching> untimed, make_touching(entry, quick));
    const auto verify = [entry, touching, untimed]() -> Status {
      const auto expected = expected_to_go(entry.name, *untimed, touching->runs);
      const auto victims = next_to_go(*touching->policy, victims_compared);
      if (victims.size() == victims_compared && victims == expected) return {};
      return fail(Errc::corrupt, "other units would go next than by the reference");
    };
    Contest contest{.ours = {.name = std::string(entry.name),
                             .version = std::string(version()),
                             .bytes = touches_of(touching->steps),
                             .run = [touching] { touching->run(); },
                             .verify = verify},
                    .peer = {}};
    if (entry.name == "lru") {
      const auto textbook = std::make_shared<TextbookLru>(touching->steps);
      contest.peer = Contender{.name = "std::list in std::unordered_map",
                               .version = "libstdc++",
                               .bytes = contest.ours.bytes,
                               .run = [textbook] { textbook->run(); }};
    }
    return contest;
  };
  const auto probe = entry.make({});
  probe->resize({.keys = tracked_keys, .slots = tracked_keys});
  const double bytes = static_cast<double>(probe->state_bytes()) / tracked_keys;
  return {.name = "cache_touch_" + std::string(entry.name),
          .unit = "1/s",
          .better = Better::higher,
          .parameters = {{"threads", 1}, {"slots", tracked_keys}, {"state_bytes_per_key", bytes}},
          .prepare = prepare};
}

}  // namespace

std::vector<Question> touch_questions() {
  std::vector<Question> questions;
  for (const policies::ReplacementEntry& entry : policies::replacement_policies()) {
    if (!entry.needs_foresight) questions.push_back(touch_question(entry));
  }
  return questions;
}

}  // namespace terrace::bench
