// Two sequences with the same tokens: each goes its own way, with any policy.
#include <gtest/gtest.h>

#include <optional>

#include "runtime/scenario.hpp"
#include "terrace/policies/retrieval.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::Traffic;

std::vector<std::string> all_policies() {
  std::vector<std::string> names;
  for (const auto& entry : policies::retrieval_policies()) names.emplace_back(entry.name);
  return names;
}

class Fork : public testing::OfEachPolicy {
 protected:
  Traffic traffic_{scenario_.runtime.shape, 1};
  Traffic other_ = traffic_.branch(213, 2);  ///< from the fork on
};

TEST_P(Fork, GoesItsOwnWay) {
  const auto expected = outputs_of(scenario_, 203, 40);
  const auto runtime = scenario_.open();
  std::optional<Drive> trunk(std::in_place, *runtime, traffic_);
  ASSERT_TRUE(trunk->prefill(203).has_value());
  ASSERT_TRUE(trunk->steps(10).has_value());
  auto forked = trunk->sequence().fork();
  ASSERT_TRUE(forked.has_value()) << forked.error().message();
  EXPECT_NE((*forked)->id(), trunk->sequence().id());
  Drive same(std::move(*forked), *runtime, traffic_);
  Drive other(trunk->sequence().fork().value(), *runtime, other_);
  // In turn, so that each would write into what it shared.
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(other.step().has_value());
    ASSERT_TRUE(trunk->step().has_value());
    ASSERT_TRUE(same.step().has_value());
  }
  trunk->expect_all_rows_right();
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(trunk->outputs()[i], expected[i]) << i;
  trunk.reset();
  ASSERT_TRUE(same.steps(10).has_value());
  same.expect_all_rows_right();
  other.expect_all_rows_right();
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(same.outputs()[i], expected[10 + i]) << i;
  EXPECT_NE(other.outputs(), same.outputs());
}

TEST_P(Fork, OfAnEmptySequenceIsEmpty) {
  const auto runtime = scenario_.open();
  Drive trunk(*runtime, traffic_);
  Drive branch(trunk.sequence().fork().value(), *runtime, traffic_);
  EXPECT_EQ(branch.sequence().length(), 0U);
  ASSERT_TRUE(branch.prefill(50).has_value());
  ASSERT_TRUE(branch.steps(3).has_value());
  branch.expect_all_rows_right();
}

TEST_P(Fork, WithoutRoomForItIsRefusedAndLeavesTheSequenceAsItWas) {
  const auto expected = outputs_of(scenario_, 2'000, 6);
  std::size_t taken = 0;
  {
    const auto runtime = scenario_.open();
    Drive drive(*runtime, traffic_);
    ASSERT_TRUE(drive.prefill(2'000).has_value());
    ASSERT_TRUE(drive.steps(6).has_value());
    taken = runtime->backend().memory(Tier::device).peak;
  }
  scenario_.backend.device_memory_limit = taken + 8'192;
  const Traffic plain(scenario_.runtime.shape, 1);
  const auto runtime = scenario_.open();
  Drive drive(*runtime, plain);
  ASSERT_TRUE(drive.prefill(2'000).has_value());
  ASSERT_TRUE(drive.steps(3).has_value());
  if (const auto forked = drive.sequence().fork(); !forked) {
    EXPECT_EQ(forked.error().code, Errc::out_of_memory) << forked.error().message();
  }
  ASSERT_TRUE(drive.steps(3).has_value());
  EXPECT_EQ(drive.outputs(), expected);
}

INSTANTIATE_TEST_SUITE_P(Table, Fork, ::testing::ValuesIn(all_policies()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace terrace
