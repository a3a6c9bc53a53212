// What a layer asks of the device to have its selected rows, counted on the stand-in.
#include <gtest/gtest.h>

#include "cuda_on_host/control.hpp"
#include "kernels/resolve_scenario.hpp"

namespace terrace {
namespace {

TEST(LaunchCounts, ALayerHasItsRowsAfterTwoLaunches) {
  for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
    testing::ResolveScenario scenario(scope, 4, 300);
    const cuda_on_host::Device device;
    for (std::uint64_t step = 0; step < 3; ++step) {
      scenario.select(step);
      const std::uint64_t before = device.counts().launches;
      scenario.resolve();
      EXPECT_EQ(device.counts().launches - before, 1U);
      scenario.fetch();
      EXPECT_EQ(device.counts().launches - before, 2U);
      EXPECT_GT(scenario.misses(), 0U);
    }
  }
}

}  // namespace
}  // namespace terrace
