// The calls that a decode step makes to the device once a sequence has found its size, counted on
// the stand-in.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <vector>

#include "cuda_on_host/control.hpp"
#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
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

/// Calls that a layer may cost in a step.
struct LayerCosts {
  const char* policy = "";
  double launches = 0;
  double records = 0;
  double waits = 0;
  double queries = 0;
};

TEST(SteadyStep, MarksAndAsksOnlyWhereSomebodyWaits) {
  constexpr std::size_t layers = 8;
  constexpr std::size_t steps = 4;
  for (const LayerCosts& most :
       {LayerCosts{"pqcache", 7, 1.75, 0.5, 1.75}, LayerCosts{"signs", 9, 1.75, 0.5, 1.75},
        LayerCosts{"wave", 7, 1.75, 0.5, 1.75}, LayerCosts{"full", 2, 0.125, 0, 0.125}}) {
    SCOPED_TRACE(most.policy);
    cuda_on_host::Device device;
    testing::Scenario scenario;
    scenario.runtime.policy = most.policy;
    scenario.runtime.shape.layers = layers;
    const auto runtime = scenario.open();
    const testing::Traffic traffic(scenario.runtime.shape, 1);
    testing::Drive drive(*runtime, traffic);
    ASSERT_TRUE(drive.prefill(200).has_value());
    ASSERT_TRUE(drive.steps(2).has_value());
    // Every event that is asked for has been reached by then, so that a wait is one query.
    device.at_each("cudaEventQuery", [&device] { device.await_idle(); });
    const cuda_on_host::DeviceCounts before = device.counts();
    ASSERT_TRUE(drive.steps(steps).has_value());
    const cuda_on_host::DeviceCounts after = device.counts();
    const auto of_layer = [&](std::uint64_t cuda_on_host::DeviceCounts::* count) {
      return static_cast<double>(after.*count - before.*count) / (layers * steps);
    };
    using cuda_on_host::DeviceCounts;
    EXPECT_EQ(of_layer(&DeviceCounts::launches), most.launches);
    EXPECT_LE(of_layer(&DeviceCounts::event_records), most.records);
    EXPECT_LE(of_layer(&DeviceCounts::stream_waits), most.waits);
    EXPECT_LE(of_layer(&DeviceCounts::event_queries), most.queries);
  }
}

/// Counts the pieces of a phase, each an op, which launches once (LaunchCounts).
class PieceCount final : public WorkObserver {
 public:
  explicit PieceCount(Phase phase) : phase_(phase) {}
  void on_work(const WorkRecord& record) override {
    if (record.phase == phase_) count_.fetch_add(1, std::memory_order_relaxed);
  }
  [[nodiscard]] std::size_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  Phase phase_;
  std::atomic<std::size_t> count_{0};
};

// Four layers leave by one copy, however many sequences take part.
TEST(SteadyStep, SendsWhatLeavesOfAllMembersByOneCopy) {
  constexpr std::size_t steps = 3;
  for (const std::size_t members : {1U, 3U}) {
    SCOPED_TRACE(members);
    PieceCount copies(Phase::offload);
    testing::Scenario scenario;
    scenario.backend.observer = &copies;
    scenario.runtime.shape.layers = 8;
    const auto runtime = scenario.open();
    testing::Batch batch(*runtime, members);
    std::vector<std::size_t> all(members);
    std::iota(all.begin(), all.end(), std::size_t{0});
    for (const std::size_t i : all) batch.expect_prompt(i, 200, 200);
    batch.expect_step(all);
    const std::size_t before = copies.count();
    for (std::size_t i = 0; i < steps; ++i) batch.expect_step(all);
    EXPECT_EQ(copies.count() - before, 2 * steps);
  }
}

/// Launches that a layer's rows cost in a step, on all queues.
double fetch_launches() {
  constexpr std::size_t steps = 4;
  PieceCount fetches(Phase::fetch);
  testing::Scenario scenario;
  scenario.backend.observer = &fetches;
  const auto runtime = scenario.open();
  const testing::Traffic traffic(scenario.runtime.shape, 1);
  {
    testing::Drive drive(*runtime, traffic);
    EXPECT_TRUE(drive.prefill(200).has_value());
    EXPECT_TRUE(drive.steps(steps).has_value());
  }  // all queues become idle
  return static_cast<double>(fetches.count()) /
         static_cast<double>(steps * scenario.runtime.shape.layers);
}

TEST(SteadyStep, HasTheRowsOfALayerAfterTwoLaunches) { EXPECT_EQ(fetch_launches(), 2); }

}  // namespace
}  // namespace terrace
