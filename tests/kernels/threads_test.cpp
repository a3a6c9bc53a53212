// Kernels of the host give the same bits on any number of threads.
#include <gtest/gtest.h>

#include "kernels/attention_scenario.hpp"
#include "kernels/part_threads.hpp"
#include "kernels/pq_index.hpp"
#include "kernels/selected.hpp"
#include "terrace/kernels/attention.hpp"
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

}  // namespace
}  // namespace terrace
