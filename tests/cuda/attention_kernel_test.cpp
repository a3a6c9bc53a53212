// Decode attention for CUDA against the reference, over shapes, dtypes and lists.
#include <gtest/gtest.h>

#include <memory>

#include "cuda/device_run.hpp"
#include "kernels/attention_scenario.hpp"
#include "terrace/kernels/cuda/ops.hpp"

namespace terrace {
namespace {

using testing::AttentionCase;
using testing::AttentionScenario;
using testing::DeviceRun;
using testing::max_difference;

// As for the host's kernel: logits of size 1 are wrong by a few units of 2^-24 * sqrt(d), and so is
// a mean of values of size at most 5. Dropping one entry of n changes the result by about 1 / n.
constexpr double tolerance = 5e-5;

KvShape make_shape(std::size_t group, std::size_t kv_heads, std::size_t head_dim, Dtype dtype) {
  return {.layers = 1,
          .query_heads = group * kv_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .dtype = dtype};
}

class CudaDecodeAttention : public ::testing::Test {
 protected:
  std::vector<float> run(AttentionScenario& scenario) {
    Guarded output(scenario.query_.size(), std::nanf(""));
    const DecodeAttention op = scenario.op(output.data());
    device_([&](const auto& launch) { return kernels::cuda::decode_attention(op, launch); });
    EXPECT_TRUE(output.intact());
    return {output.span().begin(), output.span().end()};
  }
  void expect_like_reference(const AttentionCase& options) {
    SCOPED_TRACE(options.text());
    AttentionScenario scenario(options);
    const std::vector<float> expected = scenario.run_reference();
    EXPECT_LE(max_difference(run(scenario), expected), tolerance);
  }

  using Guarded = testing::Guarded<float>;
  DeviceRun device_;
};

TEST_F(CudaDecodeAttention, AgreesWithTheReferenceForEveryShape) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t head_dim : {2U, 6U, 64U, 80U, 128U, 130U, 576U}) {
      for (const std::size_t group : {1U, 2U, 3U, 4U, 7U, 8U}) {
        expect_like_reference({.shape = make_shape(group, 2, head_dim, dtype),
                               .block_tokens = 3,
                               .sinks = 5,
                               .window = 20,
                               .selected = 13,
                               .misalignment = head_dim % 16 == 0 ? 0 : size_bytes(dtype)});
      }
    }
  }
}

TEST_F(CudaDecodeAttention, AgreesWithTheReferenceForEveryList) {
  for (const std::size_t block_tokens : {1U, 32U}) {
    for (const ListScope scope : {ListScope::kv_head, ListScope::query_head}) {
      for (const std::size_t count : {1U, 31U, 33U, 511U, 513U}) {
        expect_like_reference({.shape = make_shape(3, 2, 64, Dtype::f16),
                               .block_tokens = block_tokens,
                               .sinks = 4,
                               .window = count,
                               .selected = count,
                               .pseudo = 19,
                               .scope = scope,
                               .biased = count % 2 == 1,
                               .misalignment = count % 4 == 3 ? 2U : 0U});
      }
    }
  }
}

TEST_F(CudaDecodeAttention, AgreesWithTheReferenceForTheLargestHeads) {
  expect_like_reference({.shape = make_shape(5, 1, 1024, Dtype::f32), .window = 70});
  expect_like_reference({.shape = make_shape(4, 1, 1022, Dtype::bf16), .window = 70});
}

TEST_F(CudaDecodeAttention, FindsAMissingEntry) {
  AttentionScenario scenario({.shape = make_shape(2, 2, 64, Dtype::f16), .window = 500});
  const std::vector<float> expected = scenario.run_reference();
  std::vector<float> output(scenario.query_.size());
  DecodeAttention op = scenario.op(output.data());
  op.window.begin += 1;
  device_([&](const auto& launch) { return kernels::cuda::decode_attention(op, launch); });
  EXPECT_GT(max_difference(output, expected), tolerance);
}

TEST_F(CudaDecodeAttention, WritesZerosWithoutEntries) {
  AttentionScenario scenario({.shape = make_shape(2, 2, 6, Dtype::f16)});
  for (const float x : run(scenario)) EXPECT_EQ(x, 0.0F);
}

TEST_F(CudaDecodeAttention, GivesTheSameBitsWhereverRowsLie) {
  const KvShape shape = make_shape(4, 2, 64, Dtype::f16);
  std::vector<float> expected;
  for (const std::size_t block_tokens : {1U, 7U, 32U}) {
    for (const std::size_t misalignment : {0U, 2U}) {
      AttentionScenario scenario({.shape = shape,
                                  .block_tokens = block_tokens,
                                  .sinks = 4,
                                  .window = 530,
                                  .selected = 30,
                                  .misalignment = misalignment});
      const std::vector<float> output = run(scenario);
      if (expected.empty()) expected = output;
      EXPECT_EQ(output, expected) << block_tokens << " " << misalignment;
    }
  }
}

TEST_F(CudaDecodeAttention, GivesTheSameBitsWhateverRoomThereIsForMore) {
  // The grid is for the longest list possible: one piece alone, or one that is merged.
  AttentionScenario scenario(
      {.shape = make_shape(2, 2, 64, Dtype::bf16), .window = 100, .selected = 20});
  const std::vector<float> expected = run(scenario);
  std::vector<float> output(scenario.query_.size());
  std::vector<std::byte*> selected(2 * 600);
  std::vector<float> scratch(attention_scratch_floats(scenario.options_.shape, 800));
  DecodeAttention op = scenario.op(output.data());
  for (std::size_t list = 0; list < 2; ++list) {
    std::copy_n(op.selected + list * op.selected_stride, scenario.selected_count_[list],
                selected.begin() + static_cast<std::ptrdiff_t>(list * 600));
  }
  op.selected = selected.data();
  op.selected_stride = 600;
  op.scratch = scratch.data();
  device_([&](const auto& launch) { return kernels::cuda::decode_attention(op, launch); });
  EXPECT_EQ(output, expected);
}

class CudaAttentionOfOddNumbers : public CudaDecodeAttention,
                                  public ::testing::WithParamInterface<Dtype> {
 protected:
  CudaAttentionOfOddNumbers()
      : scenario_({.shape = make_shape(2, 1, 20, GetParam()), .window = 30}) {}

  void set_key(std::size_t position, std::size_t i, float value) {
    store_f32(scenario_.store_.row(0, position), GetParam(), i, value);
  }

  AttentionScenario scenario_;
};

INSTANTIATE_TEST_SUITE_P(Dtypes, CudaAttentionOfOddNumbers,
                         ::testing::Values(Dtype::f32, Dtype::f16, Dtype::bf16),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

TEST_P(CudaAttentionOfOddNumbers, GivesNanForANanKey) {
  set_key(20, 19, std::nanf(""));
  for (const float x : run(scenario_)) EXPECT_TRUE(std::isnan(x));
}

TEST_P(CudaAttentionOfOddNumbers, GivesNanForALogitOfPlusInfinity) {
  scenario_.query_[3] = 1;
  set_key(20, 3, HUGE_VALF);
  const std::vector<float> output = run(scenario_);
  for (std::size_t i = 0; i < 20; ++i) EXPECT_TRUE(std::isnan(output[i]));
}

TEST_P(CudaAttentionOfOddNumbers, LeavesOutALogitOfMinusInfinity) {
  scenario_.query_[3] = scenario_.query_[23] = 1;
  set_key(20, 3, -HUGE_VALF);
  EXPECT_LE(max_difference(run(scenario_), scenario_.run_reference()), tolerance);
}

TEST_P(CudaAttentionOfOddNumbers, GivesZerosWhenAllLogitsAreMinusInfinity) {
  scenario_.query_[3] = scenario_.query_[23] = 1;
  for (std::size_t p = 0; p < scenario_.tokens(); ++p) set_key(p, 3, -HUGE_VALF);
  for (const float x : run(scenario_)) EXPECT_EQ(x, 0.0F);
}

TEST_P(CudaAttentionOfOddNumbers, ReadsDenormals) {
  const float tiny = GetParam() == Dtype::f16 ? 0x1p-24F : 0x1p-130F;
  scenario_.store_.fill([tiny](std::size_t p, std::size_t, std::size_t i) {
    return static_cast<float>((p + i) % 7) * tiny;
  });
  const std::vector<float> expected = scenario_.run_reference();
  EXPECT_LE(max_difference(run(scenario_), expected), 1e-5 * double{tiny});
}

}  // namespace
}  // namespace terrace
