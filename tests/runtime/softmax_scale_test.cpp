// Engines that do not divide logits by sqrt(head_dim).
#include <gtest/gtest.h>

#include <array>

#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::StepOutput;

class SoftmaxScale : public testing::OfEachPolicy {
 protected:
  /// Outputs of a prompt and some tokens, with another scale or with queries times a factor.
  std::vector<StepOutput> outputs(float scale, float query_factor) const {
    testing::Scenario scenario = scenario_;
    scenario.runtime.shape.softmax_scale = scale;
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    batch.scale_queries(query_factor);
    batch.expect_prompt(0, 300, 120);
    for (std::size_t i = 0; i < 20; ++i) batch.expect_step(std::array{BatchMember{0, 1}});
    return batch.outputs(0);
  }
};

TEST_P(SoftmaxScale, IsAFactorOfQueries) {
  // 1 / sqrt(16) is a quarter; a factor of two loses no bit.
  ASSERT_EQ(scenario_.runtime.shape.head_dim, 16U);
  EXPECT_EQ(outputs(0.25F, 1), outputs(0, 1));
  EXPECT_NE(outputs(0.5F, 1), outputs(0, 1));
  // The last bits of its basis, which a decomposition makes of queries, change with their size.
  if (GetParam() == "infinigen") return;
  EXPECT_EQ(outputs(0.5F, 1), outputs(0, 2));
}

INSTANTIATE_TEST_SUITE_P(Table, SoftmaxScale, ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

TEST(SoftmaxScaleOfAShape, IsAboveZeroAndFinite) {
  for (const float scale :
       {-1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    testing::Scenario scenario;
    scenario.runtime.shape.softmax_scale = scale;
    auto backend = testing::make_scenario_backend(scenario.backend);
    const auto runtime = Runtime::open(scenario.runtime, std::move(backend));
    ASSERT_FALSE(runtime.has_value());
    EXPECT_NE(runtime.error().message().find("softmax_scale"), std::string_view::npos);
  }
}

}  // namespace
}  // namespace terrace
