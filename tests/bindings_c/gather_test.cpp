// terrace_step_gather: an attention kernel of the engine's own over the rows of its views gives
// what terrace_step_attend gives.
#include <gmock/gmock.h>

#include <cmath>

#include "bindings_c/c_batch.hpp"
#include "terrace/kernels/reference.hpp"

namespace terrace::testing {
namespace {

using Members = std::vector<BatchMember>;

constexpr std::size_t prompt = 120;

/// Two sequences of one runtime, fed alike.
class CGather : public ::testing::Test {
 protected:
  CGather() {
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_OK(terrace_sequence_begin_prompt(batch_.sequence(i).get(), prompt));
    }
    batch_.step(Members{{0, prompt}, {1, prompt}});
  }

  RuntimeHandle runtime_ = open_runtime();
  QueueHandle compute_ = wrap_caller(runtime_);
  CBatch batch_{runtime_.get(), compute_.get(), small_shape, 2};
};

std::vector<float> attend_over(const terrace_view& view, const float* query) {
  std::vector<float> output(small_shape.query_heads * small_shape.head_dim);
  const TokenRange sinks{view.sinks_begin, view.sinks_end};
  const TokenRange window{view.window_begin, view.window_end};
  const std::size_t entries = sinks.size() + window.size() + view.selected_stride;
  std::vector<float> scratch(attention_scratch_floats(small_shape, entries));
  kernels::reference::decode_attention(
      {.shape = small_shape,
       .query = query,
       .output = output.data(),
       .resident = {reinterpret_cast<std::byte* const*>(view.blocks), view.block_tokens},
       .sinks = sinks,
       .window = window,
       .scope = view.lists == small_shape.kv_heads ? ListScope::kv_head : ListScope::query_head,
       .selected = reinterpret_cast<std::byte* const*>(view.selected),
       .selected_count = view.selected_count,
       .selected_stride = view.selected_stride,
       .scale = 1.0F / std::sqrt(static_cast<float>(small_shape.head_dim)),
       .scratch = scratch.data()});
  return output;
}

TEST_F(CGather, GivesTheRowsThatAttendGoesOver) {
  const std::size_t floats = small_shape.query_heads * small_shape.head_dim;
  // The outputs of the step, then that step again, with what is gathered.
  std::vector<CBatch::Layer> layers;
  for (const std::size_t i : {0U, 1U}) layers.push_back(batch_.layer(i, Members{{0}}));
  {
    const StepHandle step = batch_.begin(Members{{0}});
    for (const std::uint32_t i : {0U, 1U}) {
      EXPECT_OK(terrace_step_attend(step.get(), i, &layers[i].tensors));
    }
  }
  const StepHandle step = batch_.begin(Members{{0}});
  for (const std::uint32_t i : {0U, 1U}) {
    terrace_view view = TERRACE_VIEW_INIT;
    terrace_view* const views[] = {&view};
    ASSERT_EQ(terrace_step_gather(step.get(), i, &layers[i].tensors, views), TERRACE_OK)
        << terrace_message();
    EXPECT_EQ(view.window_end, prompt + 1);
    const auto own = attend_over(view, reinterpret_cast<const float*>(layers[i].queries.data()));
    for (std::size_t j = 0; j < floats; ++j) {
      EXPECT_NEAR(own[j], load_f32(layers[i].outputs.data(), Dtype::f32, j), 1e-5);
    }
  }
  EXPECT_OK(terrace_step_end(step.get(), nullptr));
}

TEST_F(CGather, RefusesViewsThatCannotBeSet) {
  const CBatch::Layer layer = batch_.layer(0, Members{{0}, {1}});
  const StepHandle step = batch_.begin(Members{{0}, {1}});
  terrace_view view = TERRACE_VIEW_INIT;
  terrace_view* views[] = {&view, nullptr};
  expect_failure(terrace_step_gather(step.get(), 0, &layer.tensors, views),
                 TERRACE_INVALID_ARGUMENT, "view 1 is NULL");
  terrace_view wrong = TERRACE_VIEW_INIT;
  wrong.size = 3;
  views[1] = &wrong;
  expect_failure(terrace_step_gather(step.get(), 0, &layer.tensors, views),
                 TERRACE_INVALID_ARGUMENT, "view.size is 3");
  wrong.size = sizeof(terrace_view);
  EXPECT_OK(terrace_step_gather(step.get(), 0, &layer.tensors, views));
}

TEST_F(CGather, RefusesSeveralTokens) {
  const CBatch::Layer layer = batch_.layer(0, Members{{0, 2}});
  const StepHandle step = batch_.begin(Members{{0, 2}});
  terrace_view view = TERRACE_VIEW_INIT;
  terrace_view* const views[] = {&view};
  expect_failure(terrace_step_gather(step.get(), 0, &layer.tensors, views),
                 TERRACE_INVALID_ARGUMENT, "2 tokens");
}

}  // namespace
}  // namespace terrace::testing
