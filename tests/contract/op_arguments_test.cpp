// Bad arguments of ops that select are refused, and what calls of a batch may differ in.
#include "op_arguments.hpp"

namespace terrace {
namespace {

/// Whether backends compile with the op.
template <typename Op>
concept Checked = requires(const Op& op) { validate(op); };
struct OpWithoutACheck {};
static_assert(Checked<StoreRows> && !Checked<OpWithoutACheck>);

TEST_F(OpArguments, OfExactSelect) {
  expect_refused_selection(ExactSelect{.common = common(), .index = index()});
}

TEST_F(OpArguments, OfChannelSelect) {
  const std::size_t dims = shape.head_dim;
  const ChannelSelect op{
      .common = common(), .channels = {.count = dims, .partial = true}, .index = index()};
  expect_refused_selection(op);
  expect_refused<ChannelSelect>(
      op, {{[](ChannelSelect& o) { o.channels.count = 0; }, "channels.count"},
           {[&](ChannelSelect& o) { o.channels.count = dims + 1; }, "channels.count"},
           {[](ChannelSelect& o) { o.index.fixed = nullptr; }, "which channels"},
           {[](ChannelSelect& o) { o.common.id_count = as<std::uint32_t>(o.index.fixed) + 1; },
            "id_count must not overlap index.fixed"}});
  ChannelSelect whole = op;
  whole.channels.partial = false;
  whole.index.fixed = nullptr;
  EXPECT_TRUE(validate(whole).has_value());
}

TEST_F(OpArguments, OfSignSelect) {
  const SignSelect op{.common = common(),
                      .signs = {.groups = {.page_tokens = 64, .groups = 4}, .chunk_begin = 4096},
                      .index = index()};
  expect_refused_selection(op);
  expect_refused<SignSelect>(
      op, {{[](SignSelect& o) { o.signs.groups.page_tokens = 32; }, "multiple of 64"},
           {[](SignSelect& o) { o.signs.groups.page_tokens = 0; }, "page_tokens"},
           {[](SignSelect& o) { o.signs.groups.page_tokens = 512; }, "page_tokens"},
           {[](SignSelect& o) { o.signs.groups.groups = 256; }, "groups.groups"},
           {[](SignSelect& o) { o.signs.groups.chunk_begin = 2; }, "chunk_begin"},
           {[](SignSelect& o) { o.signs.chunk_begin = 6; }, "chunk_begin"}});
}

TEST_F(OpArguments, OfPqSelect) {
  const PqSelect op{.common = common(), .index = index()};
  expect_refused_selection(op);
  expect_refused<PqSelect>(
      op, {{[](PqSelect& o) { o.pq.subspaces = 0; }, "pq.subspaces"},
           {[](PqSelect& o) { o.pq.subspaces = 3; }, "pq.subspaces"},
           {[](PqSelect& o) { o.pq.bits = 0; }, "pq.bits"},
           {[](PqSelect& o) { o.pq.bits = 9; }, "pq.bits"},
           {[](PqSelect& o) { o.index.fixed = nullptr; }, "codebooks"},
           {[](PqSelect& o) { o.common.scratch = as<float>(o.index.fixed) + 2047; },
            "scratch must not overlap index.fixed"}});
}

TEST_F(OpArguments, OfPageSelect) {
  const PageSelect op{.common = common(), .pages = {.page_tokens = 16}, .index = index()};
  expect_refused_selection(op);
  expect_refused<PageSelect>(op,
                             {{[](PageSelect& o) { o.pages.page_tokens = 0; }, "page_tokens"},
                              {[](PageSelect& o) { o.pages.page_tokens = 24; }, "page_tokens"}});
}

TEST_F(OpArguments, OfClusterSelect) {
  const ClusterSelect op{
      .common = common(),
      .clusters = {.chunk_tokens = 64, .slots = 6, .estimates = true},
      .index = index(),
      .estimated = 5,
      .pseudo = pseudo(),
      .resident = blocks(),
      .mass_wanted = 0.5,
  };
  using Op = ClusterSelect;
  expect_refused_selection(op);
  expect_refused<Op>(op, {{[](Op& o) { o.clusters.slots = 0; }, "slots"},
                          {[](Op& o) { o.clusters.slots = absurd; }, "slots"},
                          {[](Op& o) { o.clusters.chunk_tokens = 32; }, "chunk_tokens"},
                          {[](Op& o) { o.clusters.estimates = false; }, "clusters.estimates"},
                          {[](Op& o) { o.scope = ListScope::query_head; }, "per KV head"},
                          {[](Op& o) { o.pseudo.bias = nullptr; }, "pseudo"},
                          {[](Op& o) { o.estimated = 6; }, "pseudo.stride"},
                          {[](Op& o) { o.resident.blocks = nullptr; }, "resident"},
                          {[](Op& o) { o.resident.block_tokens = 0; }, "resident"},
                          {[](Op& o) { o.window = {5, 4}; }, "window"},
                          {[](Op& o) { o.index.token_count = absurd; }, "2^32 tokens"},
                          {[](Op& o) {
                             o.index.token_count = 128;
                             o.clusters.slots = std::size_t{1} << 32;
                           },
                           "2^32 tokens and clusters"}});
  expect_refused<Op>(op, {{[](Op& o) { o.pseudo.rows = as<const std::byte*>(o.common.query); },
                           "pseudo.rows must not overlap query"},
                          {[](Op& o) { o.pseudo.bias = as<float>(o.common.ids); },
                           "ids must not overlap pseudo.bias"},
                          {[](Op& o) { o.pseudo.count = as<std::uint32_t>(o.pseudo.bias + 9); },
                           "pseudo.bias must not overlap pseudo.count"}});
}

TEST_F(OpArguments, MayBeMissingWhereThereAreNoCandidates) {
  ExactSelect op{.common = common(), .index = index()};
  op.common.candidates.end = op.common.candidates.begin;
  op.common.query = nullptr;
  op.common.ids = nullptr;
  op.common.scratch = nullptr;
  op.index.chunks = nullptr;
  EXPECT_TRUE(validate(op).has_value());
}

template <typename Call>
std::string difference_made(const std::function<void(Call&)>& make) {
  Call other;
  make(other);
  return std::string(difference(Call{}, other));
}

TEST_F(OpArguments, CallsOfABatchAreOfOneModel) {
  EXPECT_EQ(difference_made<StoreRows>([](auto& o) { o.shape.head_dim = 1; }), "shape");
  EXPECT_EQ(difference_made<StoreRows>([](auto& o) { o.tokens.end = 1; }), "");
  EXPECT_EQ(difference_made<PqSelect>([](auto& o) { o.common.shape.dtype = Dtype::f32; }), "shape");
  EXPECT_EQ(difference_made<PqSelect>([](auto& o) { o.pq.bits = 1; }), "pq");
  EXPECT_EQ(difference_made<ExactSelect>([](auto& o) { o.common.count.mean = 1; }), "");
  EXPECT_EQ(difference_made<ChannelSelect>([](auto& o) { o.channels.count = 1; }), "channels");
  EXPECT_EQ(difference_made<SignSelect>([](auto& o) { o.signs.chunk_begin = 8; }), "signs");
  EXPECT_EQ(difference_made<ConvertQueries>([](auto& o) { o.shape.head_dim = 1; }), "shape");
  EXPECT_EQ(difference_made<ConvertQueries>([](auto& o) { o.to = Dtype::f16; }), "");
  EXPECT_EQ(difference_made<PageSelect>([](auto& o) { o.pages.bounds = true; }), "pages");
  EXPECT_EQ(difference_made<ClusterSelect>([](auto& o) { o.clusters.slots = 1; }), "clusters");
  EXPECT_EQ(difference_made<ClusterSelect>([](auto& o) { o.scope = ListScope::query_head; }),
            "scope");
  EXPECT_EQ(difference_made<ResolveRows>([](auto& o) { o.scope = ListScope::query_head; }),
            "scope");
  EXPECT_EQ(difference_made<DecodeAttention>([](auto& o) { o.scope = ListScope::query_head; }),
            "scope");
  EXPECT_EQ(difference_made<DecodeAttention>([](auto& o) { o.window.end = 1; }), "");
  EXPECT_EQ(difference_made<TileAttention>([](auto& o) { o.shape.layers = 9; }), "shape");
  EXPECT_EQ(difference_made<TileAttention>([](auto& o) { o.seen = 1; }), "");
  EXPECT_EQ(difference_made<TileWeights>([](auto& o) { o.tile.shape.layers = 9; }), "shape");
  EXPECT_EQ(difference_made<TileWeights>([](auto& o) { o.weights.stride = 1; }), "");
}

}  // namespace
}  // namespace terrace
