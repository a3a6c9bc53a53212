// retrieval.when = spilled: a layer attends to everything while all of it is in device memory, and
// to what is selected as soon as something is not.
#include <gtest/gtest.h>

#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Scenario;
using testing::Traffic;

Scenario resident(RetrievalWhen when) {
  Scenario scenario;
  scenario.runtime.placement = Placement::resident_first;
  scenario.runtime.when = when;
  return scenario;
}

TEST(WhenSpilled, EverythingIsAttendedWhileAllOfItIsResident) {
  Scenario full;
  full.runtime.policy = "full";
  const auto expected = outputs_of(full, 200, 20);
  EXPECT_EQ(outputs_of(resident(RetrievalWhen::spilled), 200, 20), expected);
  EXPECT_NE(outputs_of(resident(RetrievalWhen::always), 200, 20), expected);
}

TEST(WhenSpilled, RowsAreSelectedOnceSomeHaveLeftDeviceMemory) {
  const auto selected = outputs_of(resident(RetrievalWhen::always), 200, 20);
  const Scenario scenario = resident(RetrievalWhen::spilled);
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(200).has_value());
  ASSERT_TRUE(drive.steps(10).has_value());
  EXPECT_NE(drive.outputs().back(), selected[9]);
  // A resumed sequence has in device memory what a step needs and no more.
  ASSERT_TRUE(drive.sequence().pause().has_value());
  ASSERT_TRUE(drive.sequence().resume().has_value());
  ASSERT_TRUE(drive.steps(10).has_value());
  for (std::size_t i = 10; i < 20; ++i) EXPECT_EQ(drive.outputs()[i], selected[i]) << i;
}

TEST(WhenSpilled, BudgetWithoutSelectedRowsAttendsToSinksAndWindow) {
  for (const Placement placement : {Placement::offload, Placement::resident_first}) {
    Scenario scenario = resident(RetrievalWhen::spilled);
    scenario.runtime.placement = placement;
    scenario.runtime.window_share = 1;
    const bool all = placement == Placement::resident_first;
    Scenario other = scenario;
    other.runtime.when = RetrievalWhen::always;
    EXPECT_EQ(outputs_of(scenario, 200, 10) == outputs_of(other, 200, 10), !all);
  }
}

}  // namespace
}  // namespace terrace
