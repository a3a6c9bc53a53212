// Pressure changes no bit of a life, whatever the sequences' policies are.
#include "runtime/pressure.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "kernels/seed.hpp"
#include "terrace/policies/retention.hpp"

namespace terrace {
namespace {

using testing::Pressure;
using testing::Scenario;
using testing::scenario_under_pressure;

/// A kind of schedule, with its policies. `number` goes through the policies of a table.
using MakeScenario = Scenario (*)(Rng& rng, std::size_t number);

Scenario with_retention(Rng& rng, std::size_t number) {
  const auto policies = policies::retention_policies();
  Scenario scenario = testing::random_retention(rng);
  // This policy needs gates of the model.
  const std::string_view policy = policies[number % policies.size()].name;
  if (policy != "smartkv") scenario.runtime.retention_policy = policy;
  return scenario;
}

Scenario with_held_entries(Rng& rng, std::size_t /*number*/) {
  return testing::random_holding(rng);
}

/// Lets each of so many threads take steps of sequences of its own, all in one runtime.
void expect_lives_alone(MakeScenario make, std::size_t threads, std::size_t usual_rounds) {
  constexpr std::size_t steps = 120;  // of four sequences, on average
  const std::size_t rounds = testing::random_rounds(usual_rounds);
  std::atomic<std::size_t> refused = 0;
  std::atomic<std::size_t> taken = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    Rng rng(testing::seed(), {round});
    const Scenario scenario = make(rng, round);
    SCOPED_TRACE(::testing::Message()
                 << testing::seed_text() << ", round " << round << ", policy "
                 << scenario.runtime.policy << ", retention " << scenario.runtime.retention_policy);
    const auto runtime = testing::with_limit(scenario, threads, rng).open();
    const auto live = [&](std::size_t thread) {
      Pressure pressure(*runtime, scenario, Rng(testing::seed(), {round, thread}));
      pressure.take_steps(steps);
      pressure.close_all();
      refused += pressure.refused();
      taken += pressure.taken();
    };
    std::vector<std::thread> others;
    for (std::size_t thread = 1; thread < threads; ++thread) others.emplace_back(live, thread);
    live(0);
    for (std::thread& other : others) other.join();
    if (::testing::Test::HasFailure()) return;
  }
  if (rounds >= 10) {
    EXPECT_GT(2 * taken, 5 * threads * rounds * steps);
    EXPECT_GT(refused, taken / 50);
    EXPECT_LT(refused, taken / 2);
  }
}

TEST(Pressure, OfRetrievalChangesNoBitOfALife) {
  expect_lives_alone(scenario_under_pressure, 1, 120);
}
TEST(Pressure, OfRetentionChangesNoBitOfALife) { expect_lives_alone(with_retention, 1, 80); }
TEST(Pressure, OfHeldEntriesChangesNoBitOfALife) { expect_lives_alone(with_held_entries, 1, 40); }
TEST(Pressure, OfTwoThreadsChangesNoBitOfALife) {
  expect_lives_alone(scenario_under_pressure, 2, 60);
}

}  // namespace
}  // namespace terrace
