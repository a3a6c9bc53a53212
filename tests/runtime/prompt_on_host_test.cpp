// Prompts in steps that have no room on the device for their rows.
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "runtime/batch.hpp"

namespace terrace {
namespace {

using testing::Batch;
using testing::BatchMember;
using testing::Scenario;
using testing::StepOutput;

/// Most rows of a prompt have no room on the device while it comes: by placement, or by a limit.
class PromptOnTheHost : public ::testing::TestWithParam<Placement> {
 protected:
  PromptOnTheHost() {
    scenario_.runtime.placement = GetParam();
    const std::size_t rows =
        tokens * scenario_.runtime.shape.layers * scenario_.runtime.shape.token_bytes();
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    batch.expect_prompt(0, tokens, tokens);
    if (GetParam() == Placement::offload) {
      EXPECT_LT(runtime->block_pool_bytes(), rows / 3);
    } else {
      scenario_.backend.device_memory_limit = runtime->backend().memory(Tier::device).peak -
                                              scenario_.spare_step_bytes(tokens) - rows * 2 / 3;
    }
  }

  /// As if the other tokens had never been.
  void expect_decodes_as_behind(Batch& batch, std::size_t length) {
    for (std::size_t i = 0; i < 10; ++i) batch.expect_step(std::array<std::size_t, 1>{0});
    batch.drive(0).expect_all_rows_right();
    const std::vector<StepOutput> steps(batch.outputs(0).end() - 10, batch.outputs(0).end());
    EXPECT_EQ(steps, testing::outputs_of(scenario_, length, 10));
  }

  const std::size_t tokens = testing::scenario_slowness > 1 ? 400 : 1500;
  Scenario scenario_;
};

TEST_P(PromptOnTheHost, MayBeKeptInPart) {
  for (const std::size_t kept : {tokens / 2, std::size_t{8}, std::size_t{3}}) {
    SCOPED_TRACE(kept);
    const auto runtime = scenario_.open();
    Batch batch(*runtime, 1);
    ASSERT_TRUE(batch.sequence(0).begin_prompt(tokens).has_value());
    batch.expect_step(std::array{BatchMember{0, tokens}}, std::array{kept});
    EXPECT_GT(batch.sequence(0).counters().bytes.streamed, 0U);
    ASSERT_TRUE(batch.sequence(0).begin_prompt(0).has_value());
    expect_decodes_as_behind(batch, kept);
  }
}

TEST_P(PromptOnTheHost, LeavesRoomToConvertQueries) {
  const KvShape& shape = scenario_.runtime.shape;
  Scenario scenario = scenario_;
  if (GetParam() == Placement::resident_first) {
    // Queries and outputs fit, and beside them not all rows.
    scenario.backend.device_memory_limit +=
        2 * tokens * shape.query_heads * shape.head_dim * sizeof(float);
  }
  std::array<std::vector<StepOutput>, 2> outputs;
  std::size_t streamed = 0;
  for (const bool in_f32 : {false, true}) {
    const auto runtime = scenario.open();
    Batch batch(*runtime, 1);
    batch.round_queries(Dtype::bf16, in_f32);
    batch.expect_prompt(0, tokens, tokens);
    outputs[in_f32 ? 1 : 0] = batch.outputs(0);
    if (!in_f32) streamed = batch.sequence(0).counters().bytes.streamed;
  }
  EXPECT_GT(streamed, 0U);
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_P(PromptOnTheHost, MayBeGivenUp) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  const std::size_t before = tokens / 5;
  batch.expect_prompt(0, before, before);
  for (const std::size_t layers : {0U, 1U, 2U}) {
    ASSERT_TRUE(batch.sequence(0).begin_prompt(tokens - before).has_value());
    batch.give_step_up(std::array{BatchMember{0, tokens - before}}, layers);
    ASSERT_EQ(batch.sequence(0).length(), before);
    ASSERT_TRUE(batch.sequence(0).begin_prompt(0).has_value());
  }
  expect_decodes_as_behind(batch, before);
}

TEST_P(PromptOnTheHost, MayBeAppendedAlone) {
  const auto runtime = scenario_.open();
  Batch batch(*runtime, 1);
  batch.expect_appended_prompt(0, tokens, tokens);
  expect_decodes_as_behind(batch, tokens);
}

/// Keeps copies to the host busy, so that rows of all layers but the first are stored late.
class SlowOffload final : public WorkObserver {
 public:
  void on_work(const WorkRecord& record) override {
    if (record.phase == Phase::offload) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
};

TEST_P(PromptOnTheHost, MayComeFromTensorsThatAreUsedAgain) {
  SlowOffload slow;
  scenario_.backend.observer = &slow;
  const auto runtime = scenario_.open();
  auto own = testing::make_own_queue(runtime->backend());
  Batch batch(*runtime, 1, std::move(own.queue));
  batch.expect_appended_prompt(0, tokens, tokens);
  batch.drive(0).expect_all_rows_right();
}

INSTANTIATE_TEST_SUITE_P(Placements, PromptOnTheHost,
                         ::testing::Values(Placement::offload, Placement::resident_first),
                         [](const auto& one) {
                           return one.param == Placement::offload ? "offload" : "resident_first";
                         });

}  // namespace
}  // namespace terrace
