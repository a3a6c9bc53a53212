// Step::gather: an engine with its own attention kernel gets the rows that attend goes over.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "policies/selecting_policies.hpp"
#include "runtime/batch.hpp"
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

/// Attention of one token by the reference kernel over the rows of a view.
void attend_by_reference(const KvShape& shape, const KvView& view, const float* query,
                         float* output) {
  const std::size_t entries = view.sinks.size() + view.window.size() + view.selected_stride;
  std::vector<float> scratch(attention_scratch_floats(shape, entries));
  kernels::reference::decode_attention(
      {.shape = shape,
       .query = query,
       .output = output,
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

/// Takes a step, with attention by the reference kernel over the rows of gather.
Status step_by_reference(Drive& drive, const Traffic& traffic, StepOutput& output) {
  const KvShape& shape = traffic.shape();
  const std::size_t position = drive.sequence().length();
  const std::size_t size = shape.query_heads * shape.head_dim;
  output.assign(shape.layers * size, 0);
  const auto step = drive.begin_step();
  KvView view;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    const auto row = traffic.rows(layer, {position, position + 1});
    const auto query = traffic.query(layer, position);
    TERRACE_TRY(step->gather(static_cast<LayerId>(layer),
                             {.query = query.data(),
                              .kv = traffic.tensors(row, 1),
                              .speculated_query = query.data(),
                              .speculated_query_stride = size},
                             {&view, 1}));
    TERRACE_TRY(drive.compute().drain(std::chrono::seconds{60}));
    attend_by_reference(shape, view, query.data(), output.data() + layer * size);
  }
  return testing::end_step(*step);
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
}

TEST_P(Gather, GivesTheRowsThatAttendGoesOver) {
  if (scenario_.open()->traits().gives_pseudo_entries) {
    expect_refused(scenario_);
    scenario_.runtime.retrieval.wave.estimated_share = 0;
    scenario_.runtime.retrieval.signs.estimates = policies::SignsOptions::Estimates::off;
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
  const auto step = drive.begin_step();
  KvView view;
  for (const std::size_t layer : {0UL, 1UL}) {
    ASSERT_TRUE(step->gather(static_cast<LayerId>(layer),
                             {.query = query.data(), .kv = traffic.tensors(row, 1)}, {&view, 1})
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
  ASSERT_TRUE(testing::end_step(*step).has_value());
  EXPECT_EQ(read.load(), 2);
}

/// Takes a step of the first `count` sequences of a batch. Outputs are of each sequence.
Status step_by_reference(Runtime& runtime, testing::Batch& batch, std::size_t count,
                         std::vector<StepOutput>& outputs) {
  const KvShape& shape = runtime.options().shape;
  const std::size_t size = shape.query_heads * shape.head_dim;
  outputs.assign(count, StepOutput(shape.layers * size));
  std::vector<StepMember> members;
  for (std::size_t i = 0; i < count; ++i) members.push_back({&batch.sequence(i)});
  TERRACE_ASSIGN(const auto step, runtime.begin_step(members, batch.compute()));
  std::vector<std::byte> rows;
  std::vector<float> queries;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    TERRACE_TRY(batch.compute().drain(std::chrono::seconds{60}));
    rows.clear();
    queries.clear();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t position = batch.sequence(i).length();
      const auto row = batch.traffic(i).rows(layer, {position, position + 1});
      const auto query = batch.traffic(i).query(layer, position);
      rows.insert(rows.end(), row.begin(), row.end());
      queries.insert(queries.end(), query.begin(), query.end());
    }
    std::vector<KvView> views(count);
    TERRACE_TRY(step->gather(static_cast<LayerId>(layer),
                             {.query = queries.data(),
                              .kv = {.keys = rows.data(),
                                     .values = rows.data() + shape.row_bytes() / 2,
                                     .token_stride = shape.token_bytes(),
                                     .head_stride = shape.row_bytes()},
                              .speculated_query = queries.data(),
                              .speculated_query_stride = size},
                             views));
    TERRACE_TRY(batch.compute().drain(std::chrono::seconds{60}));
    for (std::size_t i = 0; i < count; ++i) {
      if (!step->status(i)) continue;
      attend_by_reference(shape, views[i], queries.data() + i * size,
                          outputs[i].data() + layer * size);
    }
  }
  return step->end();
}

TEST(GatherOfABatch, GivesTheRowsThatEachAttendsTo) {
  const testing::Scenario scenario;
  const auto runtime = scenario.open();
  testing::Batch batch(*runtime, 3);
  std::vector<std::vector<StepOutput>> expected;
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(batch.drive(i).prefill(prompt + 30 * i).has_value());
    expected.push_back(outputs_of(scenario, prompt + 30 * i, step_count, i + 1));
  }
  std::vector<StepOutput> outputs;
  for (std::size_t step = 0; step < step_count; ++step) {
    const Status done = step_by_reference(*runtime, batch, 3, outputs);
    ASSERT_TRUE(done.has_value()) << done.error().message();
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_THAT(outputs[i], ::testing::Pointwise(::testing::FloatNear(2e-5F), expected[i][step]));
    }
  }
}

TEST(GatherOfABatch, RefusesDraftsAndLeavesOutWhoseRowsAreNotHere) {
  const testing::Scenario scenario;
  const auto runtime = scenario.open();
  testing::Batch batch(*runtime, 2);
  for (std::size_t i = 0; i < 2; ++i) ASSERT_TRUE(batch.drive(i).prefill(prompt).has_value());
  ASSERT_TRUE(batch.sequence(1).begin_prompt(1).has_value());  // its token attends to all rows
  std::vector<StepOutput> outputs;
  ASSERT_TRUE(step_by_reference(*runtime, batch, 2, outputs).has_value());
  EXPECT_EQ(batch.sequence(0).length(), prompt + 1);
  EXPECT_EQ(batch.sequence(1).length(), prompt);

  const StepMember members[] = {{&batch.sequence(0), 2}};
  const auto step = runtime->begin_step(members, batch.compute()).value();
  std::vector<KvView> views(1);
  EXPECT_EQ(step->gather(LayerId{0}, {}, views).error().code, Errc::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Policies, Gather, ::testing::ValuesIn(testing::selecting_policies()));

}  // namespace
}  // namespace terrace
