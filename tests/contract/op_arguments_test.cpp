// Bad arguments of ops are refused in one line that says what is wrong.
#include "terrace/core/op_arguments.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <vector>

namespace terrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::size_t absurd = std::size_t{1} << 62;

/// Memory that arguments point to; nobody reads it.
struct Memory {
  std::byte byte{};
  std::byte* block = &byte;
  const std::byte* row = &byte;
  float number = 0;
  std::uint32_t count = 0;
  MassBounds mass;
  std::uint8_t used = 0;
  std::byte* rows = nullptr;
  MissedRow missed;
  CachedRowChange change;
  EarlyOutcome outcome;
};

/// Whether backends compile with the op.
template <typename Op>
concept Checked = requires(const Op& op) { validate(op); };
struct OpWithoutACheck {};
static_assert(Checked<StoreRows> && !Checked<OpWithoutACheck>);

template <typename Op>
struct BadArgument {
  std::function<void(Op&)> make;
  const char* text;
};

class OpArguments : public ::testing::Test {
 protected:
  [[nodiscard]] IndexView index() {
    return {.fixed = &memory_.byte, .chunks = &memory_.block, .chunk_tokens = 64, .first_token = 4};
  }
  [[nodiscard]] SelectCommon common() {
    return {.shape = {.layers = 1, .query_heads = 4, .kv_heads = 2, .head_dim = 16},
            .query = &memory_.number,
            .candidates = {4, 60},
            .count = {.mean = 10},
            .ids = &memory_.count,
            .id_count = &memory_.count,
            .id_stride = 10,
            .scratch = &memory_.number};
  }

  [[nodiscard]] BlockTable blocks() { return {.blocks = &memory_.block, .block_tokens = 64}; }
  [[nodiscard]] ResolveRows resolve() {
    return {.shape = common().shape,
            .scope = ListScope::query_head,
            .ids = &memory_.count,
            .id_count = &memory_.count,
            .id_stride = 10,
            .resident = blocks(),
            .cached = {&memory_.count, &memory_.block, 64},
            .staging = &memory_.byte,
            .rows = &memory_.rows,
            .missed = &memory_.missed,
            .missed_count = &memory_.count,
            .seen = &memory_.count,
            .seen_epoch = &memory_.count,
            .seen_stride = 64};
  }

  /// Checks that `op` is right, and wrong as soon as one of `bad` is made.
  template <typename Op>
  static void expect_refused(const Op& op, const std::vector<BadArgument<Op>>& bad) {
    EXPECT_TRUE(validate(op).has_value()) << validate(op).error().message();
    for (const BadArgument<Op>& each : bad) {
      Op wrong = op;
      each.make(wrong);
      const Status refused = validate(wrong);
      ASSERT_FALSE(refused.has_value()) << each.text;
      EXPECT_EQ(refused.error().code, Errc::invalid_argument);
      EXPECT_THAT(std::string(refused.error().message()), HasSubstr(each.text));
      EXPECT_THAT(std::string(refused.error().message()), Not(HasSubstr("\n")));
    }
  }

  /// What every selecting op is refused for.
  template <typename Op>
  static void expect_refused_selection(const Op& op) {
    expect_refused<Op>(op, {{[](Op& o) { o.common.shape.head_dim = 0; }, "has a zero"},
                            {[](Op& o) { o.common.shape.head_dim = absurd; }, "head_dim"},
                            {[](Op& o) { o.common.shape.query_heads = 3; }, "no multiple"},
                            {[](Op& o) { o.common.query = nullptr; }, "query"},
                            {[](Op& o) { o.common.ids = nullptr; }, "ids"},
                            {[](Op& o) { o.common.id_count = nullptr; }, "id_count"},
                            {[](Op& o) { o.common.scratch = nullptr; }, "scratch"},
                            {[](Op& o) { o.common.count.mean = 11; }, "id_stride"},
                            {[](Op& o) { o.common.candidates.end = absurd; }, "2^32"},
                            {[](Op& o) { o.common.candidates.end = 3; }, "range"},
                            {[](Op& o) { o.common.candidates.begin = 3; }, "before the index"},
                            {[](Op& o) { o.index.chunks = nullptr; }, "index"},
                            {[](Op& o) { o.index.chunk_tokens = 0; }, "chunks"},
                            {[](Op& o) { o.index.chunk_tokens = absurd; }, "chunks"}});
    Op none = op;
    none.common.count.mean = 0;
    none.common.ids = nullptr;
    EXPECT_TRUE(validate(none).has_value());
    Op all = op;
    all.common.count.mean = absurd;
    all.common.candidates.end = all.common.candidates.begin + all.common.id_stride;
    EXPECT_TRUE(validate(all).has_value());
  }

  Memory memory_;
};

TEST_F(OpArguments, OfExactSelect) {
  expect_refused_selection(ExactSelect{.common = common(), .index = index()});
}

TEST_F(OpArguments, OfPqSelect) {
  const PqSelect op{.common = common(), .index = index()};
  expect_refused_selection(op);
  expect_refused<PqSelect>(op, {{[](PqSelect& o) { o.pq.subspaces = 0; }, "pq.subspaces"},
                                {[](PqSelect& o) { o.pq.subspaces = 3; }, "pq.subspaces"},
                                {[](PqSelect& o) { o.pq.bits = 0; }, "pq.bits"},
                                {[](PqSelect& o) { o.pq.bits = 9; }, "pq.bits"},
                                {[](PqSelect& o) { o.index.fixed = nullptr; }, "codebooks"}});
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
      .pseudo = {&memory_.row, &memory_.number, &memory_.count, 5},
      .resident = {&memory_.block, 64},
      .mass = &memory_.mass,
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
                          {[](Op& o) { o.window = {5, 4}; }, "window"}});
}

TEST_F(OpArguments, OfStoreRows) {
  // Keys of 2 heads, 32 bytes each, side by side.
  const StoreRows op{.source = {&memory_.byte, &memory_.byte, 64, 32},
                     .tokens = {4, 60},
                     .target = blocks(),
                     .shape = common().shape};
  using Op = StoreRows;
  expect_refused<Op>(op, {{[](Op& o) { o.shape.kv_heads = 0; }, "kv_heads"},
                          {[](Op& o) { o.shape.kv_heads = absurd; }, "kv_heads"},
                          {[](Op& o) { o.shape.head_dim = 0; }, "head_dim"},
                          {[](Op& o) { o.shape.head_dim = absurd; }, "head_dim"},
                          {[](Op& o) { o.tokens = {5, 4}; }, "tokens"},
                          {[](Op& o) { o.tokens.end = absurd; }, "2^32"},
                          {[](Op& o) { o.source.keys = nullptr; }, "keys"},
                          {[](Op& o) { o.source.values = nullptr; }, "values"},
                          {[](Op& o) { o.source.token_stride = 31; }, "token_stride"},
                          {[](Op& o) { o.source.head_stride = 31; }, "head_stride"},
                          {[](Op& o) { o.target.blocks = nullptr; }, "target"},
                          {[](Op& o) { o.target.block_tokens = 0; }, "target"},
                          {[](Op& o) { o.target.block_tokens = absurd; }, "target"}});
  Op one = op;
  one.tokens.end = one.tokens.begin + 1;
  one.source.token_stride = 0;
  EXPECT_TRUE(validate(one).has_value()) << "no token follows";
  EXPECT_TRUE(validate(Op{.tokens = {4, 4}, .shape = op.shape}).has_value());
}

TEST_F(OpArguments, OfMapQueries) {
  float query = 0;
  const MapQueries op{common().shape, &query, &memory_.number, &memory_.number};
  using Op = MapQueries;
  expect_refused<Op>(op, {{[](Op& o) { o.shape.head_dim = 0; }, "has a zero"},
                          {[](Op& o) { o.query = nullptr; }, "query"},
                          {[](Op& o) { o.maps = nullptr; }, "maps"},
                          {[](Op& o) { o.mapped = nullptr; }, "mapped"},
                          {[](Op& o) { o.query = o.mapped; }, "must not be query"}});
}

TEST_F(OpArguments, OfResolveRows) {
  using Op = ResolveRows;
  const Op op = resolve();
  expect_refused<Op>(op, {{[](Op& o) { o.shape.kv_heads = 0; }, "has a zero"},
                          {[](Op& o) { o.ids = nullptr; }, "ids"},
                          {[](Op& o) { o.id_count = nullptr; }, "id_count"},
                          {[](Op& o) { o.id_stride = absurd; }, "2^32"},
                          {[](Op& o) { o.id_stride = std::size_t{1} << 30; }, "2^32"},
                          {[](Op& o) { o.resident.blocks = nullptr; }, "resident"},
                          {[](Op& o) { o.resident.block_tokens = 0; }, "resident"},
                          {[](Op& o) { o.cached.blocks = nullptr; }, "cached"},
                          {[](Op& o) { o.cached.block_rows = 0; }, "cached"},
                          {[](Op& o) { o.staging = nullptr; }, "staging"},
                          {[](Op& o) { o.rows = nullptr; }, "rows"},
                          {[](Op& o) { o.missed = nullptr; }, "missed"},
                          {[](Op& o) { o.missed_count = nullptr; }, "missed_count"},
                          {[](Op& o) { o.seen_epoch = nullptr; }, "seen_epoch"},
                          {[](Op& o) { o.seen_stride = 0; }, "seen_stride"}});
  Op without = op;
  without.cached = {};
  without.seen = nullptr;
  EXPECT_TRUE(validate(without).has_value()) << "no row is cached, no head misses what another did";
  EXPECT_TRUE(
      validate(Op{.shape = op.shape, .id_count = &memory_.count, .missed_count = &memory_.count})
          .has_value())
      << "lists have no entries";
}

TEST_F(OpArguments, OfResolveEarlyRows) {
  const ResolveEarlyRows op{.resolve = resolve(),
                            .ids = &memory_.count,
                            .id_count = &memory_.count,
                            .early_ids = &memory_.count,
                            .early_count = &memory_.count,
                            .early_rows = &memory_.block,
                            .early_staging = &memory_.byte,
                            .early_missed = &memory_.count,
                            .early_used = &memory_.used,
                            .query = &memory_.number,
                            .last_query = &memory_.number,
                            .outcome = &memory_.outcome};
  using Op = ResolveEarlyRows;
  expect_refused<Op>(op, {{[](Op& o) { o.resolve.shape.head_dim = 0; }, "resolve_early_rows: "},
                          {[](Op& o) { o.resolve.staging = nullptr; }, "resolve_early_rows: "},
                          {[](Op& o) { o.ids = nullptr; }, "ids"},
                          {[](Op& o) { o.id_count = nullptr; }, "id_count"},
                          {[](Op& o) { o.early_count = nullptr; }, "early_count"},
                          {[](Op& o) { o.early_rows = nullptr; }, "early_rows"},
                          {[](Op& o) { o.early_staging = nullptr; }, "early_staging"},
                          {[](Op& o) { o.early_missed = nullptr; }, "early_missed"},
                          {[](Op& o) { o.early_used = nullptr; }, "early_used"},
                          {[](Op& o) { o.query = nullptr; }, "query"},
                          {[](Op& o) { o.last_query = nullptr; }, "last_query"},
                          {[](Op& o) { o.outcome = nullptr; }, "outcome"}});
  Op first = op;
  first.early_ids = nullptr;
  first.early_count = nullptr;
  first.early_rows = nullptr;
  first.early_staging = nullptr;
  first.early_missed = nullptr;
  EXPECT_TRUE(validate(first).has_value()) << "nothing was fetched before";
}

TEST_F(OpArguments, OfFetchRows) {
  const FetchRows op{common().shape, &memory_.missed, &memory_.count, blocks()};
  using Op = FetchRows;
  expect_refused<Op>(op, {{[](Op& o) { o.shape.kv_heads = 0; }, "kv_heads"},
                          {[](Op& o) { o.shape.head_dim = 0; }, "head_dim"},
                          {[](Op& o) { o.missed = nullptr; }, "missed"},
                          {[](Op& o) { o.missed_count = nullptr; }, "missed_count"},
                          {[](Op& o) { o.source.blocks = nullptr; }, "source"},
                          {[](Op& o) { o.source.block_tokens = 0; }, "source"}});
  Op long_rows = op;
  long_rows.shape.head_dim = 1 << 18;
  EXPECT_TRUE(validate(long_rows).has_value()) << "rows are copied, whatever their length";
}

TEST_F(OpArguments, OfCacheRows) {
  const CacheRows op{.shape = common().shape,
                     .changes = &memory_.change,
                     .count = 1,
                     .source = blocks(),
                     .target = {&memory_.count, &memory_.block, 64}};
  using Op = CacheRows;
  expect_refused<Op>(op, {{[](Op& o) { o.shape.kv_heads = 0; }, "kv_heads"},
                          {[](Op& o) { o.shape.head_dim = 0; }, "head_dim"},
                          {[](Op& o) { o.changes = nullptr; }, "changes"},
                          {[](Op& o) { o.source.blocks = nullptr; }, "source"},
                          {[](Op& o) { o.source.block_tokens = 0; }, "source"},
                          {[](Op& o) { o.target.numbers = nullptr; }, "numbers"},
                          {[](Op& o) { o.target.blocks = nullptr; }, "target"},
                          {[](Op& o) { o.target.block_rows = 0; }, "target"}});
  EXPECT_TRUE(validate(Op{.shape = op.shape}).has_value()) << "nothing changes";
}

TEST_F(OpArguments, OfDecodeAttention) {
  const DecodeAttention op{.shape = common().shape,
                           .query = &memory_.number,
                           .output = &memory_.number,
                           .resident = blocks(),
                           .sinks = {0, 4},
                           .window = {60, 64},
                           .selected = &memory_.block,
                           .selected_count = &memory_.count,
                           .selected_stride = 10,
                           .pseudo = {&memory_.row, &memory_.number, &memory_.count, 5},
                           .scratch = &memory_.number};
  using Op = DecodeAttention;
  expect_refused<Op>(op, {{[](Op& o) { o.shape.head_dim = 0; }, "has a zero"},
                          {[](Op& o) { o.query = nullptr; }, "query"},
                          {[](Op& o) { o.output = nullptr; }, "output"},
                          {[](Op& o) { o.resident.blocks = nullptr; }, "resident"},
                          {[](Op& o) { o.resident.block_tokens = 0; }, "resident"},
                          {[](Op& o) { o.sinks = {4, 0}; }, "sinks"},
                          {[](Op& o) { o.window.end = absurd; }, "window"},
                          {[](Op& o) { o.selected_count = nullptr; }, "selected_count"},
                          {[](Op& o) { o.pseudo.rows = nullptr; }, "pseudo.rows"},
                          {[](Op& o) { o.scratch = nullptr; }, "scratch"}});
  EXPECT_TRUE(validate(Op{.shape = op.shape, .query = op.query, .output = op.output}).has_value())
      << "there is nothing to attend to";
  Op unbiased = op;
  unbiased.pseudo.bias = nullptr;
  EXPECT_TRUE(validate(unbiased).has_value());
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

}  // namespace
}  // namespace terrace
