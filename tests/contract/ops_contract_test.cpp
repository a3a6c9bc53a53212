// The table of kernels, as far as every backend shares it; what kernels compute is tested in
// tests/kernels.
#include <gmock/gmock.h>

#include <functional>
#include <span>
#include <utility>

#include "contract/backend_case.hpp"

namespace terrace {
namespace {

constexpr KvShape shape{.layers = 1, .query_heads = 2, .kv_heads = 2, .head_dim = 8};

/// Calls of store_rows, each with a block of its own, of tokens 0 to a number of each call.
class Stores {
 public:
  Stores(std::vector<std::size_t> tokens, const std::function<Buffer(std::size_t)>& allocate)
      : tables_(tokens.size()) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::size_t bytes = tokens[i] * shape.token_bytes();
      for (const auto value : {std::byte{1}, std::byte{2}, std::byte{0}}) {
        buffers_.push_back(allocate(bytes));
        std::fill_n(buffers_.back().data(), bytes, value);
      }
      const std::span<Buffer> own = std::span(buffers_).last(3);
      tables_[i] = own[2].data();
      calls_.push_back({.source = {.keys = own[0].data(),
                                   .values = own[1].data(),
                                   .token_stride = shape.token_bytes() / 2,
                                   .head_stride = shape.row_bytes() / 2},
                        .tokens = {.begin = 0, .end = tokens[i]},
                        .target = {.blocks = &tables_[i], .block_tokens = tokens[i]},
                        .shape = shape});
    }
  }

  [[nodiscard]] std::vector<StoreRows>& calls() { return calls_; }

  /// Whether the rows of a call are in its block.
  [[nodiscard]] bool is_stored(std::size_t call) const {
    const std::byte* const block = tables_[call];
    const std::size_t bytes = calls_[call].tokens.size() * shape.token_bytes();
    return block[0] == std::byte{1} && block[bytes - 1] == std::byte{2};
  }

 private:
  std::vector<Buffer> buffers_;
  std::vector<std::byte*> tables_;
  std::vector<StoreRows> calls_;
};

class OpsContract : public BackendContract {
 protected:
  /// Memory that ops read and write here lies where both host and device reach it.
  Stores stores(std::vector<std::size_t> tokens) {
    return {std::move(tokens), [this](std::size_t bytes) { return host_buffer(bytes); }};
  }
  static std::size_t bytes_offloaded(const Queue& queue) {
    return queue.counters().bytes[static_cast<std::size_t>(Phase::offload)];
  }
};

TEST_P(OpsContract, TheTableIsComplete) {
  const Ops& ops = backend_->ops();
  EXPECT_NE(ops.store_rows, nullptr);
  EXPECT_NE(ops.pq_select, nullptr);
  EXPECT_NE(ops.exact_select, nullptr);
  EXPECT_NE(ops.channel_select, nullptr);
  EXPECT_NE(ops.map_queries, nullptr);
  EXPECT_NE(ops.convert_queries, nullptr);
  EXPECT_NE(ops.page_select, nullptr);
  EXPECT_NE(ops.cluster_select, nullptr);
  EXPECT_NE(ops.refine_select, nullptr);
  EXPECT_NE(ops.sign_select, nullptr);
  EXPECT_NE(ops.resolve_rows, nullptr);
  EXPECT_NE(ops.fetch_rows, nullptr);
  EXPECT_NE(ops.cache_rows, nullptr);
  EXPECT_NE(ops.decode_attention, nullptr);
  EXPECT_NE(ops.tile_attention, nullptr);
  EXPECT_NE(ops.tile_weights, nullptr);
}

TEST_P(OpsContract, StoringRowsCountsBytesOnlyAcrossTheLink) {
  Stores made = stores({4});
  const auto offload = queue("offload");
  for (const bool crosses_link : {false, true}) {
    made.calls()[0].crosses_link = crosses_link;
    ASSERT_TRUE(backend_->ops().store_rows(*offload, Phase::offload, made.calls()[0]));
    ASSERT_TRUE(offload->drain(patience));
    EXPECT_EQ(bytes_offloaded(*offload), crosses_link ? 4 * shape.token_bytes() : 0U);
  }
  EXPECT_TRUE(made.is_stored(0));
}

TEST_P(OpsContract, ABatchIsOnePieceOfWorkWithTheBytesOfItsCalls) {
  Stores made = stores({4, 1, 9, 1, 7});
  const auto offload = queue("offload");
  for (const std::size_t call : {0U, 2U, 3U}) made.calls()[call].crosses_link = true;
  const auto before = offload->record();
  ASSERT_TRUE(before);
  // The arguments are copied: what becomes of them afterwards does not matter.
  const std::vector<StoreRows> calls = std::exchange(made.calls(), {});
  const auto stored = backend_->ops().store_rows(*offload, Phase::offload, calls);
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->number, before->number + 1);
  made.calls() = calls;
  ASSERT_TRUE(offload->wait(*stored, patience));
  ASSERT_TRUE(offload->drain(patience));
  EXPECT_EQ(bytes_offloaded(*offload), (4 + 9 + 1) * shape.token_bytes());
  for (std::size_t call = 0; call < calls.size(); ++call) {
    EXPECT_TRUE(made.is_stored(call)) << call;
  }
}

TEST_P(OpsContract, ABatchOfNoCallsIsDoneWithWhatCameBefore) {
  const auto offload = queue("offload");
  const auto before = offload->record();
  const auto nothing =
      backend_->ops().store_rows(*offload, Phase::offload, std::span<const StoreRows>());
  ASSERT_TRUE(before && nothing);
  EXPECT_EQ(nothing->number, before->number);
  EXPECT_TRUE(offload->wait(*nothing, patience));
  EXPECT_EQ(bytes_offloaded(*offload), 0U);
}

TEST_P(OpsContract, OneBadCallRefusesItsBatchBeforeAnythingIsEnqueued) {
  Stores made = stores({4, 1, 9});
  const auto offload = queue("offload");
  const auto before = offload->record();
  const auto refusal = [&](std::size_t call, auto make_bad) {
    std::vector<StoreRows> calls = made.calls();
    make_bad(calls[call]);
    const auto refused = backend_->ops().store_rows(*offload, Phase::offload, calls);
    return refused ? std::string() : std::string(refused.error().message());
  };
  EXPECT_EQ(refusal(1, [](StoreRows& call) { call.source.keys = nullptr; }),
            "call 1 of 3: store_rows: source.keys must be given");
  EXPECT_EQ(refusal(2, [](StoreRows& call) { call.shape.kv_heads = 1; }),
            "call 2 of 3: shape must be that of call 0");
  EXPECT_EQ(offload->record()->number, before->number);
  ASSERT_TRUE(offload->drain(patience));
  for (std::size_t call = 0; call < 3; ++call) {
    EXPECT_FALSE(made.is_stored(call)) << call;
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
  EXPECT_TRUE(refused(ops.channel_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.map_queries(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.convert_queries(*compute, Phase::attend, {})));
  EXPECT_TRUE(refused(ops.page_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.cluster_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.refine_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.sign_select(*compute, Phase::select, {})));
  EXPECT_TRUE(refused(ops.resolve_rows(*compute, Phase::fetch, {})));
  EXPECT_TRUE(refused(ops.fetch_rows(*compute, Phase::fetch, {})));
  EXPECT_TRUE(refused(ops.cache_rows(*compute, Phase::refill, {})));
  EXPECT_TRUE(refused(ops.decode_attention(*compute, Phase::attend, {})));
  EXPECT_TRUE(refused(ops.tile_attention(*compute, Phase::attend, {})));
  EXPECT_TRUE(refused(ops.tile_weights(*compute, Phase::attend, {})));
  EXPECT_TRUE(compute->drain(patience).has_value());
}

INSTANTIATE_TEST_SUITE_P(Backends, OpsContract, testing::ValuesIn(backend_cases()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace terrace
