// Kernels of the host give the same bits on any number of threads.
#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <vector>

#include "kernels/attention_scenario.hpp"
#include "kernels/conversion.hpp"
#include "kernels/part_threads.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/selected.hpp"
#include "kernels/tile_scenario.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/calls.hpp"
#include "terrace/kernels/convert_queries.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace {
namespace {

using testing::make_shape;
using testing::PartThreads;

TEST(NumberOfThreads, DoesNotChangeAttention) {
  testing::AttentionScenario scenario({.shape = make_shape(3, 2, 80, Dtype::bf16),
                                       .sinks = 4,
                                       .window = 1100,
                                       .selected = 300,
                                       .scope = ListScope::query_head});
  std::vector<float> expected(scenario.query_.size());
  Serial serial;
  kernels::host::decode_attention(scenario.op(expected.data()), serial);
  for (const std::size_t count : {1U, 2U, 4U}) {
    PartThreads threads(count);
    std::vector<float> output(expected.size());
    kernels::host::decode_attention(scenario.op(output.data()), threads);
    EXPECT_EQ(output, expected) << count << " threads";
  }
}

TEST(NumberOfThreads, DoesNotChangeAttentionToATile) {
  testing::TileScenario scenario(
      {.shape = make_shape(3, 2, 80, Dtype::bf16), .rows = 1100, .tokens = 70, .seen = 480});
  const auto attend = [&](Parallel& threads) {
    return scenario.attend(70, tile_split, [&](const TileAttention& op) {
      kernels::host::tile_attention(op, threads);
    });
  };
  Serial serial;
  const std::vector<float> expected = attend(serial);
  for (const std::size_t count : {1U, 2U, 4U, 9U}) {
    PartThreads threads(count);
    EXPECT_EQ(attend(threads), expected) << count << " threads";
  }
}

TEST(NumberOfThreads, DoesNotChangeWeightsOfAttention) {
  testing::AttentionScenario scenario(
      {.shape = make_shape(3, 2, 80, Dtype::bf16), .sinks = 4, .window = 1100, .selected = 300});
  std::vector<float> output(scenario.query_.size());
  const auto weigh = [&](Parallel& threads) {
    std::vector<float> sums(2 * scenario.weights_stride());
    kernels::host::decode_attention(scenario.op(output.data(), ListScope::kv_head, sums.data()),
                                    threads);
    return sums;
  };
  Serial serial;
  const std::vector<float> expected = weigh(serial);
  for (const std::size_t count : {1U, 2U, 4U}) {
    PartThreads threads(count);
    EXPECT_EQ(weigh(threads), expected) << count << " threads";
  }
}

TEST(NumberOfThreads, DoesNotChangeWeightsOfATile) {
  testing::TileScenario scenario(
      {.shape = make_shape(3, 2, 80, Dtype::bf16), .rows = 1100, .tokens = 70, .seen = 480});
  static_cast<void>(scenario.run());
  const auto weigh = [&](Parallel& threads) {
    return scenario.weigh(ListScope::kv_head, 70, 1024,
                          [&](const TileWeights& op) { kernels::host::tile_weights(op, threads); });
  };
  Serial serial;
  const std::vector<float> expected = weigh(serial);
  for (const std::size_t count : {1U, 2U, 4U, 9U}) {
    PartThreads threads(count);
    EXPECT_EQ(weigh(threads), expected) << count << " threads";
  }
}

TEST(NumberOfThreads, DoesNotChangeASelection) {
  const KvShape shape = make_shape(4, 3, 64, Dtype::f16);
  testing::PqIndex index(shape, {}, 512, 5000, 0);
  index.fill_codes();
  testing::Selected selected(shape, {0, 5000}, 300);
  Serial serial;
  const PqSelect op{.common = selected.common({}), .index = index.view()};
  kernels::host::pq_select(op, serial);
  testing::Selected expected = selected;
  for (const std::size_t count : {1U, 2U, 4U}) {
    PartThreads threads(count);
    kernels::host::pq_select(op, threads);
    EXPECT_TRUE(selected.ids_.same_bits(expected.ids_)) << count << " threads";
  }
}

TEST(NumberOfThreads, DoesNotChangeAConversion) {
  for (const std::size_t count : {1U, 2U, 4U}) {
    PartThreads threads(count);
    testing::Conversion conversion({.shape = make_shape(4, 8, 80, Dtype::f16),
                                    .from = Dtype::f32,
                                    .to = Dtype::f16,
                                    .tokens = 64});
    conversion.fill(0);
    kernels::host::convert_queries(conversion.op(), threads);
    conversion.expect_right();
  }
}

TEST(NumberOfThreads, DoesNotChangeABatch) {
  std::vector<std::unique_ptr<testing::AttentionScenario>> scenarios;
  for (const std::size_t window : {600U, 3U, 1300U, 40U, 0U}) {
    scenarios.push_back(std::make_unique<testing::AttentionScenario>(testing::AttentionCase{
        .shape = make_shape(3, 2, 16, Dtype::f16), .sinks = 4, .window = window, .selected = 30}));
  }
  const auto attend = [&](Parallel& threads) {
    std::vector<float> outputs;
    std::vector<DecodeAttention> calls;
    outputs.resize(scenarios.size() * scenarios[0]->query_.size());
    for (std::size_t i = 0; i < scenarios.size(); ++i) {
      calls.push_back(scenarios[i]->op(&outputs[i * scenarios[0]->query_.size()]));
    }
    kernels::host::for_each_call(std::span<const DecodeAttention>(calls), threads,
                                 kernels::host::decode_attention);
    return outputs;
  };
  Serial serial;
  const std::vector<float> expected = attend(serial);
  for (const std::size_t count : {1U, 2U, 5U, 8U}) {  // a thread a call, or all for one
    PartThreads threads(count);
    EXPECT_EQ(attend(threads), expected) << count << " threads";
  }
}

}  // namespace
}  // namespace terrace
