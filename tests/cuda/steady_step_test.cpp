// What a decode step asks of the device once a sequence has found its size, counted on the
// stand-in.
#include <gtest/gtest.h>

#include "cuda_on_host/control.hpp"
#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

TEST(SteadyStep, WaitsForNothingAndAllocatesNothing) {
  const cuda_on_host::Device device;
  for (const std::string& policy : testing::selecting_policies()) {
    SCOPED_TRACE(policy);
    testing::Scenario scenario;
    scenario.runtime.policy = policy;
    const auto runtime = scenario.open();
    const testing::Traffic traffic(scenario.runtime.shape, 1);
    testing::Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(200).has_value());
    ASSERT_TRUE(drive.steps(2).has_value());
    const cuda_on_host::DeviceCounts before = device.counts();
    ASSERT_TRUE(drive.steps(4).has_value());  // to positions 202 to 205, of one block
    const cuda_on_host::DeviceCounts after = device.counts();
    EXPECT_GT(after.launches, before.launches);
    EXPECT_EQ(after.synchronizations - before.synchronizations, 0U);
    EXPECT_EQ(after.allocations - before.allocations, 0U);
  }
}

}  // namespace
}  // namespace terrace
