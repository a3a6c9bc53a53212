// Sequence::gather: an engine with its own attention kernel gets the rows that attend goes over.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "policies/selecting_policies.hpp"
#include "runtime/scenario.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace {
namespace {

using testing::Drive;
using testing::outputs_of;
using testing::StepOutput;
using testing::Traffic;

constexpr std::size_t prompt = 200;
constexpr std::size_t step_count = 12;

class Gather : public testing::OfEachPolicy {};

/// One step, attention by the reference kernel over what gather gives.
Status step_by_reference(Drive& drive, const Traffic& traffic, StepOutput& output) {
  const KvShape& shape = traffic.shape();
  const std::size_t position = drive.sequence().length();
  const std::size_t size = shape.query_heads * shape.head_dim;
  output.assign(shape.layers * size, 0);
  std::vector<float> scratch(attention_scratch_floats(shape, position + 1));
  TERRACE_TRY(drive.sequence().begin_step());
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const auto row = traffic.rows(layer, {position, position + 1});
    const auto query = traffic.query(layer, position);
    TERRACE_ASSIGN(const KvView view,
                   drive.sequence().gather(static_cast<LayerId>(layer),
                                           {.query = query.data(), .kv = traffic.tensors(row, 1)},
                                           drive.compute()));
    TERRACE_TRY(drive.compute().drain(std::chrono::seconds{60}));
    kernels::reference::decode_attention(
        {.shape = shape,
         .query = query.data(),
         .output = output.data() + layer * size,
         .resident = view.resident,
         .sinks = view.sinks,
         .window = view.window,
         .scope = view.scope,
         .selected = view.selected,
         .selected_count = view.selected_count,
         .selected_stride = view.selected_stride,
         .scale = 1.0F / std::sqrt(static_cast<float>(shape.head_dim)),
         .scratch = scratch.data()});
  }
  return drive.sequence().end_step();
}

/// Pseudo-entries need a bias, which the view has no place for.
void expect_refused(const testing::Scenario& scenario) {
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  StepOutput output;
  const Status refused = step_by_reference(drive, traffic, output);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::unsupported);
  ASSERT_TRUE(drive.sequence().abandon_step().has_value());
}

TEST_P(Gather, GivesTheRowsThatAttendGoesOver) {
  if (scenario_.open()->traits().gives_pseudo_entries) {
    expect_refused(scenario_);
    scenario_.runtime.retrieval.wave.estimated_share = 0;
  }
  const auto runtime = scenario_.open();
  const Traffic traffic(scenario_.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  StepOutput output;
  const auto expected = outputs_of(scenario_, prompt, step_count);
  for (std::size_t i = 0; i < step_count; ++i) {
    const Status done = step_by_reference(drive, traffic, output);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    ASSERT_EQ(output.size(), expected[i].size());
    // f32 sums against double's, of values below 4.
    for (std::size_t j = 0; j < output.size(); ++j) ASSERT_NEAR(output[j], expected[i][j], 2e-5F);
  }
  EXPECT_GT(drive.sequence().counters().cache.rows_missed, 0U);
}

TEST(OwnAttention, IsWaitedForBeforeAStepEnds) {
  testing::Scenario scenario;
  const auto runtime = scenario.open();
  const Traffic traffic(scenario.runtime.shape, 1);
  Drive drive(*runtime, traffic);
  ASSERT_TRUE(drive.prefill(prompt).has_value());
  std::atomic<int> read{0};
  const auto row = traffic.rows(0, {prompt, prompt + 1});
  const auto query = traffic.query(0, prompt);
  ASSERT_TRUE(drive.sequence().begin_step().has_value());
  for (const std::size_t layer : {0UL, 1UL}) {
    ASSERT_TRUE(drive.sequence()
                    .gather(static_cast<LayerId>(layer),
                            {.query = query.data(), .kv = traffic.tensors(row, 1)}, drive.compute())
                    .has_value());
    ASSERT_TRUE(drive.compute()
                    .call(Phase::attend,
                          [&read]() -> Result<std::size_t> {
                            std::this_thread::sleep_for(std::chrono::milliseconds{50});
                            ++read;
                            return 0;
                          })
                    .has_value());
  }
  ASSERT_TRUE(drive.sequence().end_step().has_value());
  EXPECT_EQ(read.load(), 2);
}

INSTANTIATE_TEST_SUITE_P(Policies, Gather, ::testing::ValuesIn(testing::selecting_policies()));

}  // namespace
}  // namespace terrace
