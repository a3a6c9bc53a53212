// Samples of the attention mass where memory is short or a copy fails.
#include <gtest/gtest.h>

#include "runtime/faulty_runtime.hpp"
#include "runtime/naive_mass.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::mass_place;
using testing::mass_tolerance;
using testing::naive_mass;
using testing::sampled_mass;
using testing::Scenario;
using testing::Traffic;

constexpr std::size_t prompt = 200;

TEST(MassWithFaults, LosesASampleWhereMemoryIsShortAndNothingElse) {
  Scenario scenario;
  scenario.runtime.mass_every = 3;
  const std::vector<testing::StepOutput> expected = testing::outputs_of(scenario, prompt, 4);
  const testing::FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  ASSERT_TRUE(drive.steps(2).has_value());
  faulty.faults->arm({.allocation_nth = 1});
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_EQ(faulty.faults->counters().allocations_failed, 1U);
  EXPECT_EQ(drive.sequence().counters().mass_samples, 0U);
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_EQ(drive.sequence().counters().mass_samples, 1U);
  EXPECT_EQ(drive.outputs(), expected);
  drive.expect_all_rows_right();
}

TEST(MassWithFaults, LosesNoRowWhereTheCopyOfAQueryFails) {
  Scenario scenario;
  scenario.runtime.mass_every = 1;
  const testing::FaultyRuntime faulty(scenario);
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*faulty.runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  faulty.faults->arm({.pieces = {{.phase = Phase::offload, .nth = 1}}});
  EXPECT_FALSE(drive.step().has_value());
  EXPECT_EQ(drive.sequence().length(), prompt);
  EXPECT_EQ(drive.sequence().counters().mass_samples, 0U);
  faulty.faults->arm({});
  ASSERT_TRUE(drive.step().has_value());
  EXPECT_NEAR(sampled_mass(drive.sequence()),
              naive_mass(drive.sequence(), traffic, mass_place(0, 0), prompt), mass_tolerance);
  EXPECT_EQ(drive.outputs(), testing::outputs_of(scenario, prompt, 1));
  drive.expect_all_rows_right();
}

}  // namespace
}  // namespace terrace
