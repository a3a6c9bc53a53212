// The table of kernels, as far as every backend shares it; what kernels compute is tested in
// tests/kernels.
#include <gmock/gmock.h>

#include "contract/backend_case.hpp"

namespace terrace {
namespace {

class OpsContract : public BackendContract {};

TEST_P(OpsContract, TheTableIsComplete) {
  const Ops& ops = backend_->ops();
  EXPECT_NE(ops.store_rows, nullptr);
  EXPECT_NE(ops.pq_select, nullptr);
  EXPECT_NE(ops.exact_select, nullptr);
  EXPECT_NE(ops.map_queries, nullptr);
  EXPECT_NE(ops.page_select, nullptr);
  EXPECT_NE(ops.cluster_select, nullptr);
  EXPECT_NE(ops.resolve_rows, nullptr);
  EXPECT_NE(ops.fetch_rows, nullptr);
  EXPECT_NE(ops.cache_rows, nullptr);
  EXPECT_NE(ops.decode_attention, nullptr);
}

TEST_P(OpsContract, StoringRowsCountsBytesOnlyAcrossTheLink) {
  const KvShape shape{.layers = 1, .query_heads = 2, .kv_heads = 2, .head_dim = 8};
  constexpr std::size_t tokens = 4;
  const std::size_t bytes = tokens * shape.token_bytes();
  // What ops read and write here lies where both host and device reach it.
  const Buffer keys = host_buffer(bytes / 2);
  const Buffer values = host_buffer(bytes / 2);
  std::fill_n(keys.data(), bytes / 2, std::byte{1});
  std::fill_n(values.data(), bytes / 2, std::byte{2});
  const Buffer block = host_buffer(bytes);
  std::byte* const blocks[] = {block.data()};
  StoreRows rows;
  rows.source = {.keys = keys.data(),
                 .values = values.data(),
                 .token_stride = shape.token_bytes() / 2,
                 .head_stride = shape.row_bytes() / 2};
  rows.tokens = {.begin = 0, .end = tokens};
  rows.target = {.blocks = blocks, .block_tokens = tokens};
  rows.shape = shape;
  const auto offload = queue("offload");
  for (const bool crosses_link : {false, true}) {
    rows.crosses_link = crosses_link;
    ASSERT_TRUE(backend_->ops().store_rows(*offload, Phase::offload, rows));
    ASSERT_TRUE(offload->drain(patience));
    EXPECT_EQ(offload->counters().bytes[static_cast<std::size_t>(Phase::offload)],
              crosses_link ? bytes : 0U);
  }
  if (moves_bytes()) {
    EXPECT_EQ(block.data()[0], std::byte{1});
    EXPECT_EQ(block.data()[bytes - 1], std::byte{2});
  }
}

TEST_P(OpsContract, BadArgumentsAreRefusedBeforeAnythingIsEnqueued) {
  const auto compute = queue("compute");
  const auto refused = [](const Result<Ticket>& enqueued) {
    return !enqueued && enqueued.error().code == Errc::invalid_argument;
  };
  const Ops& ops = backend_->ops();
  EXPECT_TRUE(refused(ops.store_rows(*compute, Phase::update, {})));
  EXPECT_TRUE(refused(ops.pq_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.exact_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.map_queries(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.page_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.cluster_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.resolve_rows(*compute, Phase::fetch, {})));
  EXPECT_TRUE(refused(ops.fetch_rows(*compute, Phase::fetch, {})));
  EXPECT_TRUE(refused(ops.cache_rows(*compute, Phase::refill, {})));
  EXPECT_TRUE(refused(ops.decode_attention(*compute, Phase::attend, {})));
  EXPECT_TRUE(compute->drain(patience).has_value());
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsContract, testing::ValuesIn(backend_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace terrace
