// Hit counts of an independent implementation on small traces, item by item: see golden/ORIGIN.md.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "terrace/policies/replacement.hpp"

namespace terrace::policies {
namespace {

struct GoldenCount {
  std::string trace;
  std::string policy;
  std::size_t slots = 0;
  std::size_t requests = 0;
  std::size_t hits = 0;
};

std::vector<GoldenCount> golden_counts() {
  std::ifstream file(TERRACE_GOLDEN_FOLDER "/hits.csv");
  std::string line;
  std::getline(file, line);  // names of the columns
  std::vector<GoldenCount> counts;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    GoldenCount count;
    std::getline(fields, count.trace, ',');
    std::getline(fields, count.policy, ',');
    char comma = 0;
    fields >> count.slots >> comma >> count.requests >> comma >> count.hits;
    counts.push_back(count);
  }
  return counts;
}

std::vector<UnitKey> golden_trace(const std::string& name) {
  std::ifstream file(TERRACE_GOLDEN_FOLDER "/" + name + ".txt");
  std::vector<UnitKey> units;
  for (UnitKey unit = 0; file >> unit;) units.push_back(unit);
  return units;
}

class TraceFuture final : public Foresight {
 public:
  explicit TraceFuture(const std::vector<UnitKey>& units) : again_(units.size(), never) {
    std::map<UnitKey, std::uint64_t> later;
    for (std::size_t i = units.size(); i-- > 0;) {
      if (const auto found = later.find(units[i]); found != later.end()) again_[i] = found->second;
      later[units[i]] = i;
    }
  }
  void begin(std::size_t request, UnitKey unit) { next_[unit] = again_[request]; }
  [[nodiscard]] std::uint64_t next_step(UnitKey key) const noexcept override {
    const auto found = next_.find(key);
    return found == next_.end() ? never : found->second;
  }

 private:
  std::vector<std::uint64_t> again_;
  std::map<UnitKey, std::uint64_t> next_;
};

std::size_t count_hits(const GoldenCount& golden, const std::vector<UnitKey>& units) {
  TraceFuture future(units);
  const auto policy = make_replacement_policy(golden.policy, {.foresight = &future}).value();
  constexpr std::size_t keys = 1000;
  policy->resize({.keys = keys, .slots = golden.slots});
  std::vector<bool> resident(keys);
  std::size_t hits = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const UnitKey unit = units[i];
    future.begin(i, unit);
    if (resident[unit]) {
      ++hits;
      policy->touch({&unit, 1});
      continue;
    }
    policy->touch({});
    policy->miss({&unit, 1});
    if (policy->size() == golden.slots) {
      // The peer always takes the newcomer in, its offline optimum too.
      const UnitKey incoming = golden.policy == "belady" ? no_unit : unit;
      const UnitKey victim = policy->choose_victim(incoming, [](UnitKey) { return true; }).value();
      policy->evict(victim);
      resident[victim] = false;
    }
    policy->track(unit, 1);
    resident[unit] = true;
  }
  return hits;
}

TEST(GoldenHits, AreThoseOfAnIndependentImplementation) {
  const std::vector<GoldenCount> counts = golden_counts();
  ASSERT_GT(counts.size(), 60U);
  for (const GoldenCount& golden : counts) {
    const std::vector<UnitKey> units = golden_trace(golden.trace);
    ASSERT_EQ(units.size(), golden.requests);
    EXPECT_EQ(count_hits(golden, units), golden.hits)
        << golden.policy << " with " << golden.slots << " slots on " << golden.trace;
  }
}

}  // namespace
}  // namespace terrace::policies
