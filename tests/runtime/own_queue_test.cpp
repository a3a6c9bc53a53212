// The queue of an embedder's compute, made by the backend or by the embedder, must not change one
// bit.
#include <gtest/gtest.h>

#include <thread>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::StepOutput;
using testing::Traffic;

constexpr std::size_t prompt = 300;
constexpr std::size_t step_count = 12;

class OwnQueueOfEachPolicy : public testing::OfEachPolicyWithACache {
 protected:
  /// Outputs of a sequence on the embedder's compute queue.
  std::vector<StepOutput> on_own_queue() const {
    const auto runtime = scenario_.open();
    const Traffic traffic(scenario_.runtime.shape, 1);
    auto own = testing::make_own_queue(runtime->backend());
    Drive drive(runtime->open_sequence().value(), *runtime, std::move(own.queue), traffic);
    EXPECT_TRUE(drive.prefill(prompt).has_value());
    const Status stepped = drive.steps(step_count);
    EXPECT_TRUE(stepped) << stepped.error().message();
    return drive.outputs();
  }
};

TEST_P(OwnQueueOfEachPolicy, GivesTheBitsOfAQueueOfTheBackend) {
  for (const IndexResidency residency : {IndexResidency::device, IndexResidency::host}) {
    scenario_.runtime.index_residency = residency;
    const auto expected = outputs_of(scenario_, prompt, step_count);
    ASSERT_EQ(expected.size(), step_count);
    std::vector<StepOutput> outputs;
    std::thread engine([&] { outputs = on_own_queue(); });
    engine.join();
    EXPECT_EQ(outputs, expected) << static_cast<int>(residency);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, OwnQueueOfEachPolicy,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
