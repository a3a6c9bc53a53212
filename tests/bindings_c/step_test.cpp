// Steps by calls of C: the bits of the same steps by calls of C++, and every misuse an error.
#include <gmock/gmock.h>

#include <cstring>

#include "bindings_c/c_batch.hpp"
#include "policies/selecting_policies.hpp"
#include "terrace/offload/registry.hpp"

namespace terrace::testing {
namespace {

using ::testing::Each;

using Members = std::vector<BatchMember>;

/// Two sequences give prompts in pieces, decode, and have a draft verified.
template <typename AnyBatch, typename BeginPrompt>
void serve(AnyBatch& batch, BeginPrompt begin_prompt) {
  begin_prompt(0, 90);
  begin_prompt(1, 130);
  batch.step(Members{{0, 50}, {1, 70}}, {});
  batch.step(Members{{0, 40}, {1, 20}}, {});
  batch.step(Members{{0}, {1, 40}}, {});
  for (int i = 0; i < 6; ++i) batch.step(Members{{1}, {0}}, {});
  const std::size_t accepted[] = {2, 1};
  batch.step(Members{{0, 4}, {1}}, accepted);
  batch.step(Members{{0}, {1}}, {});
}

void serve(Batch& batch) {
  serve(batch, [&](std::size_t i, std::size_t tokens) {
    EXPECT_TRUE(batch.sequence(i).begin_prompt(tokens).has_value());
  });
}

void serve(CBatch& batch) {
  serve(batch, [&](std::size_t i, std::size_t tokens) {
    EXPECT_OK(terrace_sequence_begin_prompt(batch.sequence(i).get(), tokens));
  });
}

std::unique_ptr<Runtime> open_cpp_runtime(const std::string& policy) {
  Config config;
  for (const auto& [key, value] : small_settings) {
    EXPECT_TRUE(config.set(key, value, {ConfigOrigin::flag, "test"}));
  }
  EXPECT_TRUE(config.set("retrieval.policy", policy, {ConfigOrigin::flag, "test"}));
  return Runtime::open(RuntimeOptions::from(config, small_shape).value(),
                       offload::make_backend("host", {}).value().backend)
      .value();
}

class CStepOfEachPolicy : public ::testing::TestWithParam<std::string> {};

TEST_P(CStepOfEachPolicy, GivesTheBitsOfCallsOfCpp) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const std::unique_ptr<Runtime> runtime = open_cpp_runtime(GetParam());
    Batch batch(*runtime, 2);
    batch.round_queries(dtype, /*in_f32=*/false);
    serve(batch);

    const RuntimeHandle c_runtime = open_runtime({{"retrieval.policy", GetParam().c_str()}});
    const QueueHandle compute = wrap_caller(c_runtime);
    CBatch c_batch(c_runtime.get(), compute.get(), small_shape, 2, dtype);
    serve(c_batch);
    for (const std::size_t i : {0U, 1U}) {
      ASSERT_EQ(batch.outputs(i).size(), i == 0 ? 100U : 138U);
      EXPECT_EQ(c_batch.outputs(i), batch.outputs(i)) << "sequence " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, CStepOfEachPolicy,
                         ::testing::ValuesIn(testing::selecting_policies()),
                         [](const auto& name) { return name.param; });

/// Returns the outputs of a sequence that has a prompt of 20 tokens and decodes 60.
std::vector<StepOutput> decode_after_short_prompt(Settings settings) {
  const RuntimeHandle runtime = open_runtime(settings);
  const QueueHandle compute = wrap_caller(runtime);
  CBatch batch(runtime.get(), compute.get(), small_shape, 1);
  EXPECT_OK(terrace_sequence_begin_prompt(batch.sequence(0).get(), 20));
  batch.step(Members{{0, 20}});
  for (int i = 0; i < 60; ++i) batch.step(Members{{0}});
  return batch.outputs(0);
}

TEST(CStepOfAShare, AttendsToAllTokensUpToTheLeastBudget) {
  const auto all = decode_after_short_prompt({{"retrieval.budget", "4096"}});
  EXPECT_EQ(decode_after_short_prompt({{"retrieval.budget", "0.1"}}), all);
  EXPECT_NE(decode_after_short_prompt({{"retrieval.budget", "0.1"}, {"retrieval.budget_min", "1"}}),
            all);
}

TEST(CStepOfAScale, MultipliesLogitsByIt) {
  const std::unique_ptr<Runtime> runtime = open_cpp_runtime("pqcache");
  Batch batch(*runtime, 2);
  batch.scale_queries(2);
  serve(batch);
  for (const float factor : {1.0F, 2.0F}) {
    KvShape shape = small_shape;
    shape.softmax_scale = factor * small_shape.logit_scale();
    const RuntimeHandle c_runtime = open_runtime({}, shape);
    const QueueHandle compute = wrap_caller(c_runtime);
    CBatch c_batch(c_runtime.get(), compute.get(), shape, 2);
    serve(c_batch);
    EXPECT_EQ(c_batch.outputs(0) == batch.outputs(0), factor == 2.0F);
    EXPECT_EQ(c_batch.outputs(1) == batch.outputs(1), factor == 2.0F);
  }
}

class CStep : public ::testing::Test {
 protected:
  static constexpr std::size_t prompt = 60;

  CStep() {
    for (const std::size_t i : {0U, 1U}) {
      EXPECT_OK(terrace_sequence_begin_prompt(batch_.sequence(i).get(), prompt));
    }
    EXPECT_THAT(batch_.step(Members{{0, prompt}, {1, prompt}}), Each(TERRACE_OK));
  }
  terrace_status attend(const StepHandle& step, std::uint32_t layer) {
    return terrace_step_attend(step.get(), layer, &layers_[layer % 2].tensors);
  }
  /// A step of one token each with tensors at hand.
  StepHandle begin() {
    layers_.clear();
    for (const std::size_t i : {0U, 1U}) layers_.push_back(batch_.layer(i, both_));
    return batch_.begin(both_);
  }
  [[nodiscard]] std::size_t length(std::size_t i) {
    return terrace_sequence_length(batch_.sequence(i).get());
  }

  const Members both_{{0}, {1}};
  RuntimeHandle runtime_ = open_runtime();
  QueueHandle compute_ = wrap_caller(runtime_);
  CBatch batch_{runtime_.get(), compute_.get(), small_shape, 2};
  std::vector<CBatch::Layer> layers_;
};

TEST_F(CStep, TakesLayersInTheirTurnAlone) {
  const StepHandle step = begin();
  EXPECT_EQ(attend(step, 1), TERRACE_INVALID_ARGUMENT);
  EXPECT_OK(attend(step, 0));
  EXPECT_EQ(attend(step, 0), TERRACE_INVALID_ARGUMENT);
  expect_failure(terrace_step_end(step.get(), nullptr), TERRACE_INVALID_ARGUMENT, "not all layers");
  EXPECT_OK(attend(step, 1));
  EXPECT_EQ(attend(step, 2), TERRACE_INVALID_ARGUMENT);
  EXPECT_OK(terrace_step_end(step.get(), nullptr));
  EXPECT_EQ(length(0), prompt + 1);
  expect_failure(attend(step, 0), TERRACE_INVALID_ARGUMENT, "ended");
  expect_failure(terrace_step_end(step.get(), nullptr), TERRACE_INVALID_ARGUMENT, "ended");
  EXPECT_OK(terrace_step_status(step.get(), 1));
}

TEST_F(CStep, IsGivenUpByClosingIt) {
  StepHandle step = begin();
  EXPECT_OK(attend(step, 0));
  EXPECT_EQ(terrace_sequence_phase(batch_.sequence(0).get()), TERRACE_PHASE_STEP);
  step.reset();
  EXPECT_EQ(terrace_sequence_phase(batch_.sequence(0).get()), TERRACE_PHASE_IDLE);
  EXPECT_EQ(length(0), prompt);
  EXPECT_THAT(batch_.step(both_), Each(TERRACE_OK));
}

TEST_F(CStep, SaysWhichSequenceTakesNoPart) {
  EXPECT_OK(terrace_sequence_pause(batch_.sequence(1).get()));
  const StepHandle step = begin();
  EXPECT_EQ(terrace_step_sequences(step.get()), 2U);
  EXPECT_OK(terrace_step_status(step.get(), 0));
  expect_failure(terrace_step_status(step.get(), 1), TERRACE_INVALID_ARGUMENT, "paused");
  expect_failure(terrace_step_status(step.get(), 2), TERRACE_INVALID_ARGUMENT, "no sequence 2");
  for (const std::uint32_t layer : {0U, 1U}) EXPECT_OK(attend(step, layer));
  EXPECT_OK(terrace_step_end(step.get(), nullptr));
  EXPECT_EQ(length(0), prompt + 1);
  EXPECT_EQ(length(1), prompt);
}

TEST_F(CStep, RefusesMoreAcceptedTokensThanThereAre) {
  const StepHandle step = begin();
  for (const std::uint32_t layer : {0U, 1U}) EXPECT_OK(attend(step, layer));
  std::size_t accepted[] = {1, 2};
  expect_failure(terrace_step_end(step.get(), accepted), TERRACE_INVALID_ARGUMENT, "2 tokens");
  accepted[1] = 0;
  EXPECT_OK(terrace_step_end(step.get(), accepted));
  EXPECT_EQ(length(0), prompt + 1);
  EXPECT_EQ(length(1), prompt);
}

TEST_F(CStep, RefusesTensorsThatAreIncomplete) {
  const StepHandle step = begin();
  const auto refused = [&](auto change) {
    terrace_tensors tensors = layers_[0].tensors;
    change(tensors);
    EXPECT_EQ(terrace_step_attend(step.get(), 0, &tensors), TERRACE_INVALID_ARGUMENT);
  };
  refused([](terrace_tensors& one) { one.query = nullptr; });
  refused([](terrace_tensors& one) { one.keys = nullptr; });
  refused([](terrace_tensors& one) { one.values = nullptr; });
  refused([](terrace_tensors& one) { one.output = nullptr; });
  refused([](terrace_tensors& one) { one.kv_token_stride = 0; });
  refused([](terrace_tensors& one) { one.query_stride = 1; });
  refused([](terrace_tensors& one) { one.output_stride = 1; });
  refused([](terrace_tensors& one) { one.dtype = -1; });
  refused([](terrace_tensors& one) { one.reserved = 1; });
  refused([](terrace_tensors& one) { one.speculated_query_stride = 0; });
  terrace_prompt_hints hints = TERRACE_PROMPT_HINTS_INIT;
  hints.query_window_count = 3;
  const terrace_prompt_hints* pointers[] = {&hints, nullptr};
  refused([&](terrace_tensors& one) { one.hints = pointers; });
  EXPECT_OK(attend(step, 0));
}

/// The same tensors with gaps between tokens, and keys and values head by head.
struct WithGaps {
  static constexpr std::size_t floats = small_shape.query_heads * small_shape.head_dim;
  static constexpr std::size_t query_stride = floats + 3;
  static constexpr std::size_t output_stride = floats + 5;

  WithGaps(const CBatch::Layer& packed, std::size_t tokens)
      : queries(tokens * query_stride), outputs(tokens * output_stride), tensors(packed.tensors) {
    const std::size_t key = small_shape.row_bytes() / 2;
    const std::size_t head_stride = tokens * key + 16;
    for (std::vector<std::byte>* rows : {&keys, &values}) {
      rows->resize(small_shape.kv_heads * head_stride);
      const std::size_t first = rows == &keys ? 0 : key;
      for (std::size_t row = 0; row < tokens * small_shape.kv_heads; ++row) {
        const std::size_t token = row / small_shape.kv_heads;
        const std::size_t head = row % small_shape.kv_heads;
        std::memcpy(rows->data() + head * head_stride + token * key,
                    packed.rows.data() + row * 2 * key + first, key);
      }
    }
    for (std::size_t token = 0; token < tokens; ++token) {
      std::memcpy(queries.data() + token * query_stride,
                  packed.queries.data() + token * floats * sizeof(float), floats * sizeof(float));
    }
    tensors.query = queries.data();
    tensors.query_stride = query_stride;
    tensors.keys = keys.data();
    tensors.values = values.data();
    tensors.kv_token_stride = key;
    tensors.kv_head_stride = head_stride;
    tensors.output = outputs.data();
    tensors.output_stride = output_stride;
  }

  std::vector<float> queries;
  std::vector<float> outputs;
  std::vector<std::byte> keys;
  std::vector<std::byte> values;
  terrace_tensors tensors;
};

TEST_F(CStep, TakesTensorsWithStrides) {
  {
    const StepHandle packed = begin();
    for (const std::uint32_t layer : {0U, 1U}) EXPECT_OK(attend(packed, layer));
  }
  std::vector<std::unique_ptr<WithGaps>> gaps;
  for (const std::size_t i : {0U, 1U}) gaps.push_back(std::make_unique<WithGaps>(layers_[i], 2));
  const StepHandle step = batch_.begin(both_);
  for (const std::uint32_t layer : {0U, 1U}) {
    EXPECT_OK(terrace_step_attend(step.get(), layer, &gaps[layer]->tensors));
    for (std::size_t i = 0; i < 2 * WithGaps::floats; ++i) {
      const std::size_t token = i / WithGaps::floats;
      EXPECT_EQ(gaps[layer]->outputs[token * WithGaps::output_stride + i % WithGaps::floats],
                load_f32(layers_[layer].outputs.data(), Dtype::f32, i));
    }
  }
  EXPECT_OK(terrace_step_end(step.get(), nullptr));
}

TEST_F(CStep, TakesHintsOfSomeSequencesOrNone) {
  const StepHandle step = begin();
  const terrace_prompt_hints* pointers[] = {layers_[0].hint_pointers[0], nullptr};
  layers_[0].tensors.hints = pointers;
  EXPECT_OK(attend(step, 0));
  layers_[1].tensors.hints = nullptr;
  EXPECT_OK(attend(step, 1));
  EXPECT_OK(terrace_step_end(step.get(), nullptr));
}

TEST_F(CStep, IsRefusedWithoutWhatItIsOf) {
  terrace_sequence* sequences[] = {batch_.sequence(0).get(), nullptr};
  const RuntimeHandle other = open_runtime();
  const QueueHandle others = wrap_caller(other);
  const SequenceHandle stranger = open_sequence(other);
  const auto refused = [&](auto change, const char* part) {
    terrace_step_options options = TERRACE_STEP_OPTIONS_INIT;
    options.sequences = sequences;
    options.count = 1;
    options.compute = compute_.get();
    change(options);
    terrace_step* step = nullptr;
    expect_failure(terrace_step_begin(runtime_.get(), &options, &step), TERRACE_INVALID_ARGUMENT,
                   part);
    EXPECT_EQ(step, nullptr);
  };
  refused([](terrace_step_options& one) { one.count = 0; }, "no sequences");
  refused([](terrace_step_options& one) { one.count = 2; }, "sequence 1 is NULL");
  refused([](terrace_step_options& one) { one.sequences = nullptr; }, "sequences is NULL");
  refused([](terrace_step_options& one) { one.compute = nullptr; }, "compute is NULL");
  refused([](terrace_step_options& one) { one.dtype = 3; }, "members.dtype is 3");
  refused([](terrace_step_options& one) { one.reserved = 1; }, "members.reserved is 1");
  refused([&](terrace_step_options& one) { one.compute = others.get(); }, "another runtime");
  sequences[0] = stranger.get();
  refused([](terrace_step_options&) {}, "another runtime");
}

TEST_F(CStep, TakesOneTokenOfEachWhereNoCountsAreGiven) {
  terrace_sequence* sequences[] = {batch_.sequence(0).get(), batch_.sequence(1).get()};
  terrace_step_options options = TERRACE_STEP_OPTIONS_INIT;
  options.sequences = sequences;
  options.count = 2;
  options.compute = compute_.get();
  static_cast<void>(begin());  // tensors of one token each
  terrace_step* step = nullptr;
  ASSERT_EQ(terrace_step_begin(runtime_.get(), &options, &step), TERRACE_OK);
  const StepHandle owner(step);
  for (const std::uint32_t layer : {0U, 1U}) EXPECT_OK(attend(owner, layer));
  EXPECT_OK(terrace_step_end(step, nullptr));
  EXPECT_EQ(length(1), prompt + 1);
}

TEST_F(CStep, TellsOfASequenceThatComesTwice) {
  const StepHandle step = batch_.begin(Members{{0}, {0}});
  EXPECT_OK(terrace_step_status(step.get(), 0));
  EXPECT_EQ(terrace_step_status(step.get(), 1), TERRACE_INVALID_ARGUMENT);
}

TEST_F(CStep, IsAnErrorOnceTheRuntimeIsClosed) {
  const StepHandle step = begin();
  EXPECT_OK(attend(step, 0));
  runtime_.reset();
  expect_failure(attend(step, 1), TERRACE_INVALID_ARGUMENT, "the runtime was closed");
  expect_failure(terrace_step_end(step.get(), nullptr), TERRACE_INVALID_ARGUMENT,
                 "the runtime was closed");
  EXPECT_OK(terrace_step_status(step.get(), 0));
}

TEST_F(CStep, RefusesNull) {
  const StepHandle step = begin();
  terrace_step* begun = nullptr;
  const terrace_step_options options = TERRACE_STEP_OPTIONS_INIT;
  const auto refused = [](terrace_status returned) {
    expect_failure(returned, TERRACE_INVALID_ARGUMENT, "is NULL");
  };
  refused(terrace_step_begin(nullptr, &options, &begun));
  refused(terrace_step_begin(runtime_.get(), nullptr, &begun));
  refused(terrace_step_begin(runtime_.get(), &options, nullptr));
  refused(terrace_step_attend(nullptr, 0, &layers_[0].tensors));
  refused(terrace_step_attend(step.get(), 0, nullptr));
  refused(terrace_step_append(nullptr, 0, &layers_[0].tensors));
  refused(terrace_step_append(step.get(), 0, nullptr));
  refused(terrace_step_gather(nullptr, 0, &layers_[0].tensors, nullptr));
  refused(terrace_step_gather(step.get(), 0, &layers_[0].tensors, nullptr));
  refused(terrace_step_end(nullptr, nullptr));
  refused(terrace_step_status(nullptr, 0));
  EXPECT_EQ(terrace_step_sequences(nullptr), 0U);
  terrace_step_close(nullptr);
}

}  // namespace
}  // namespace terrace::testing
