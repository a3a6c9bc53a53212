// Bad arguments of ops on rows, queries and attention are refused.
#include "op_arguments.hpp"

namespace terrace {
namespace {

TEST_F(OpArguments, OfStoreRows) {
  // Keys of 2 heads, 32 bytes each, side by side.
  const StoreRows op{.source = {room<std::byte>(), room<std::byte>(), 64, 32},
                     .tokens = {4, 60},
                     .target = blocks(),
                     .shape = shape};
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
                          {[](Op& o) { o.target.block_tokens = absurd; }, "target"},
                          {[](Op& o) { o.tokens.end = 65; }, "every block"},
                          {[](Op& o) { o.source.keys = o.target.blocks[0]; }, "source.keys"},
                          {[](Op& o) { o.source.values = o.target.blocks[0] + 8191; },
                           "a block of target must not overlap source.values"}});
  Op side_by_side = op;
  side_by_side.source.values = op.source.keys + 32;
  EXPECT_TRUE(validate(side_by_side).has_value()) << "what is only read may overlap";
  Op one = op;
  one.tokens.end = one.tokens.begin + 1;
  one.source.token_stride = 0;
  EXPECT_TRUE(validate(one).has_value()) << "no token follows";
  EXPECT_TRUE(validate(Op{.tokens = {4, 4}, .shape = op.shape}).has_value());
}

TEST_F(OpArguments, OfMapQueries) {
  const MapQueries op{shape, room<float>(), room<float>(), room<float>()};
  using Op = MapQueries;
  expect_refused<Op>(
      op, {{[](Op& o) { o.shape.head_dim = 0; }, "has a zero"},
           {[](Op& o) { o.query = nullptr; }, "query"},
           {[](Op& o) { o.maps = nullptr; }, "maps"},
           {[](Op& o) { o.mapped = nullptr; }, "mapped"},
           {[](Op& o) { o.query = o.mapped; }, "mapped must not overlap query"},
           {[](Op& o) { o.mapped = as<float>(o.query + query_floats - 1); },
            "mapped must not overlap query"},
           {[](Op& o) { o.mapped = as<float>(o.maps + 511); }, "mapped must not overlap maps"}});
  Op beside = op;
  beside.mapped = as<float>(op.query + query_floats);
  EXPECT_TRUE(validate(beside).has_value());
}

TEST_F(OpArguments, OfConvertQueries) {
  constexpr std::size_t f16_bytes = 2 * query_floats;
  constexpr std::size_t f32_bytes = 4 * query_floats;
  const ConvertQueries op{.shape = shape,
                          .source = room<std::byte>(),
                          .from = Dtype::f16,
                          .source_stride = f16_bytes + 2,
                          .target = room<std::byte>(),
                          .to = Dtype::f32,
                          .target_stride = f32_bytes + 4,
                          .tokens = 3};
  using Op = ConvertQueries;
  expect_refused<Op>(
      op, {{[](Op& o) { o.shape.head_dim = 0; }, "has a zero"},
           {[](Op& o) { o.shape.query_heads = absurd; }, "2^24"},
           {[](Op& o) { o.tokens = absurd; }, "tokens must not be above 2^32"},
           {[](Op& o) { o.source = nullptr; }, "source must be given"},
           {[](Op& o) { o.target = nullptr; }, "target must be given"},
           {[](Op& o) { o.source_stride = f16_bytes - 2; }, "source_stride must not be below"},
           {[](Op& o) { o.target_stride = f32_bytes - 4; }, "target_stride must not be below"},
           {[](Op& o) { o.from = Dtype::f32; }, "source_stride must not be below"},
           {[](Op& o) { o.source += 1; }, "source and source_stride must be multiples"},
           {[](Op& o) { o.source_stride += 1; }, "source and source_stride must be multiples"},
           {[](Op& o) { o.target += 2; }, "target and target_stride must be multiples"},
           {[](Op& o) { o.target_stride += 2; }, "target and target_stride must be multiples"},
           // The last number of each.
           {[](Op& o) { o.source = o.target + 3 * f32_bytes + 2 * 4 - 2; },
            "target must not overlap source"},
           {[](Op& o) { o.target = as<std::byte>(o.source + 3 * f16_bytes); },
            "target must not overlap source"},
           {[](Op& o) {
              o.source_stride = absurd;
              o.source = o.target - 8;
            },
            "target must not overlap source"}});
  Op beside = op;
  beside.target = as<std::byte>(op.source + 3 * f16_bytes + 2 * 2);
  EXPECT_TRUE(validate(beside).has_value());
  Op alone = op;
  alone.tokens = 1;
  alone.source_stride = alone.target_stride = 1;
  EXPECT_TRUE(validate(alone).has_value()) << "there is no next token";
  EXPECT_TRUE(validate(Op{.shape = op.shape}).has_value()) << "there are no tokens";
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
  expect_refused<Op>(
      op,
      {{[](Op& o) { o.rows = as<std::byte*>(o.staging + 2552); }, "staging must not overlap rows"},
       {[](Op& o) { o.missed = as<MissedRow>(o.rows + 38); }, "rows must not overlap missed"},
       {[](Op& o) { o.missed_count = as<std::uint32_t>(o.id_count + 3); },
        "missed_count must not overlap id_count"},
       {[](Op& o) { o.missed = as<MissedRow>(o.ids); }, "missed must not overlap ids"},
       {[](Op& o) { o.seen = as<std::uint32_t>(o.missed); }, "missed must not overlap seen"},
       {[](Op& o) { o.seen_epoch = o.seen + 127; }, "seen must not overlap seen_epoch"},
       {[](Op& o) { o.seen_epoch = o.missed_count; }, "missed_count must not overlap seen_epoch"}});
  expect_refused<Op>(op, {{[](Op& o) { o.cached.numbers = nullptr; }, "numbers"},
                          {[](Op& o) { o.cached.block_rows = 63; }, "of each KV head"},
                          {[](Op& o) { o.slots.count = absurd; }, "slots must be below"},
                          {[](Op& o) { o.slots.each = nullptr; }, "slots.each"},
                          {[](Op& o) { o.seen = nullptr; }, "slots need seen"},
                          {[](Op& o) { o.slots.calls = nullptr; }, "slots.calls"},
                          {[](Op& o) { o.slot_counts = nullptr; }, "slot_counts"},
                          {[](Op& o) { o.slots.each = as<RowSlot>(o.slots.calls); },
                           "slots.each must not overlap slots.calls"},
                          {[](Op& o) { o.slots.calls = o.missed_count; },
                           "missed_count must not overlap slots.calls"}});
  Op without = op;
  without.cached = {};
  without.slots = {};
  without.seen = nullptr;
  EXPECT_TRUE(validate(without).has_value()) << "no row is cached, no head misses what another did";
  EXPECT_TRUE(
      validate(Op{.shape = op.shape, .id_count = op.id_count, .missed_count = op.missed_count})
          .has_value())
      << "lists have no entries";
}

TEST_F(OpArguments, OfFetchRows) {
  const FetchRows op{shape, room<MissedRow>(), room<std::uint32_t>(), blocks()};
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
  const CacheRows op{.shape = shape,
                     .changes = room<CachedRowChange>(),
                     .count = 2,
                     .source = blocks(),
                     .target = {room<std::uint32_t>(), table(), 64}};
  using Op = CacheRows;
  expect_refused<Op>(op, {{[](Op& o) { o.shape.kv_heads = 0; }, "kv_heads"},
                          {[](Op& o) { o.shape.head_dim = 0; }, "head_dim"},
                          {[](Op& o) { o.changes = nullptr; }, "changes"},
                          {[](Op& o) { o.source.blocks = nullptr; }, "source"},
                          {[](Op& o) { o.source.block_tokens = 0; }, "source"},
                          {[](Op& o) { o.target.numbers = nullptr; }, "numbers"},
                          {[](Op& o) { o.target.blocks = nullptr; }, "target"},
                          {[](Op& o) { o.target.block_rows = 0; }, "target"},
                          {[](Op& o) { o.target.numbers = as<std::uint32_t>(o.changes + 1); },
                           "target.numbers must not overlap changes"}});
  EXPECT_TRUE(validate(Op{.shape = op.shape}).has_value()) << "nothing changes";
}

TEST_F(OpArguments, OfDecodeAttention) {
  const PseudoTarget entries = pseudo();
  const DecodeAttention op{.shape = shape,
                           .query = room<float>(),
                           .output = room<float>(),
                           .resident = blocks(),
                           .sinks = {0, 4},
                           .window = {60, 64},
                           .selected = table(),
                           .selected_count = room<std::uint32_t>(),
                           .selected_stride = 10,
                           .selected_bias = room<float>(),
                           .pseudo = {entries.rows, entries.bias, entries.count, entries.stride},
                           .scratch = room<float>()};
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
  expect_refused<Op>(
      op,
      {{[](Op& o) { o.output = as<float>(o.query); }, "output must not overlap query"},
       {[](Op& o) { o.output = as<float>(o.query + query_floats - 1); },
        "output must not overlap query"},
       {[](Op& o) { o.output = o.scratch + 71; }, "output must not overlap scratch"},
       {[](Op& o) { o.query = o.scratch + 71; }, "scratch must not overlap query"},
       {[](Op& o) { o.output = as<float>(o.selected + 19); }, "output must not overlap selected"},
       {[](Op& o) { o.output = as<float>(o.selected_count); },
        "output must not overlap selected_count"},
       {[](Op& o) { o.scratch = as<float>(o.selected_bias); },
        "scratch must not overlap selected_bias"},
       {[](Op& o) { o.scratch = as<float>(o.pseudo.rows); },
        "scratch must not overlap pseudo.rows"},
       {[](Op& o) { o.scratch = as<float>(o.pseudo.bias); },
        "scratch must not overlap pseudo.bias"},
       {[](Op& o) { o.output = as<float>(o.pseudo.count); },
        "output must not overlap pseudo.count"}});
  Op beside = op;
  beside.output = as<float>(op.query + query_floats);
  beside.scratch = beside.output + query_floats;
  EXPECT_TRUE(validate(beside).has_value());
  EXPECT_TRUE(validate(Op{.shape = op.shape, .query = op.query, .output = op.output}).has_value())
      << "there is nothing to attend to";
  Op unbiased = op;
  unbiased.pseudo.bias = nullptr;
  EXPECT_TRUE(validate(unbiased).has_value());
}

TEST_F(OpArguments, OfWeightsOfDecodeAttention) {
  const DecodeAttention op{.shape = shape,
                           .query = room<float>(),
                           .output = room<float>(),
                           .resident = blocks(),
                           .sinks = {0, 4},
                           .window = {60, 64},
                           .selected = table(),
                           .selected_count = room<std::uint32_t>(),
                           .selected_stride = 10,
                           .scratch = room<float>(),
                           .weights = {.sums = room<float>(), .stride = 8},
                           .weights_scratch = room<float>()};
  using Op = DecodeAttention;
  expect_refused<Op>(
      op,
      {{[](Op& o) { o.scope = ListScope::query_head; },
        "weights must be of query heads where each query head has a list"},
       {[](Op& o) { o.weights.stride = 7; }, "weights.stride must not be below"},
       {[](Op& o) { o.weights.stride = absurd; }, "weights.stride must not be above 2^32"},
       {[](Op& o) { o.weights_scratch = nullptr; }, "weights_scratch must be given"},
       // The last float of each, and the first.
       {[](Op& o) { o.weights.sums = o.weights_scratch + 4 * 8 - 1; },
        "weights.sums must not overlap weights_scratch"},
       {[](Op& o) { o.weights_scratch = o.weights.sums + 2 * 8 - 1; },
        "weights.sums must not overlap weights_scratch"},
       {[](Op& o) { o.weights.sums = o.output; }, "output must not overlap weights.sums"},
       {[](Op& o) { o.weights_scratch = o.scratch; }, "scratch must not overlap weights_scratch"},
       {[](Op& o) { o.weights.sums = as<float>(o.query); }, "weights.sums must not overlap query"},
       {[](Op& o) { o.weights_scratch = as<float>(o.selected_count); },
        "weights_scratch must not overlap selected_count"}});
  Op of_query_heads = op;
  of_query_heads.scope = of_query_heads.weights.scope = ListScope::query_head;
  EXPECT_TRUE(validate(of_query_heads).has_value());
  Op unwanted = op;
  unwanted.weights = {};
  unwanted.weights_scratch = unwanted.output;
  EXPECT_TRUE(validate(unwanted).has_value()) << "nobody wants weights: nothing is written";
}

TEST_F(OpArguments, OfTileWeights) {
  const TileWeights op{.tile = {.shape = shape,
                                .query = room<float>(),
                                .query_stride = query_floats + 2,
                                .tokens = 3,
                                .rows = blocks(),
                                .row_count = 60,
                                .seen = -1,
                                .state = room<float>()},
                       .weights = {.sums = room<float>(), .stride = 100},
                       .first_column = 40};
  using Op = TileWeights;
  expect_refused<Op>(
      op,
      {{[](Op& o) { o.tile.shape.head_dim = 0; }, "has a zero"},
       {[](Op& o) { o.tile.query = nullptr; }, "query must be given"},
       {[](Op& o) { o.tile.state = nullptr; }, "state must be given"},
       {[](Op& o) { o.tile.rows.blocks = nullptr; }, "rows must have blocks"},
       {[](Op& o) { o.tile.row_count = absurd; }, "row_count must not be above 2^32"},
       {[](Op& o) { o.weights.sums = nullptr; }, "weights.sums must be given"},
       {[](Op& o) { o.weights.stride = absurd; }, "weights.stride must not be above 2^32"},
       {[](Op& o) { o.first_column = 41; }, "first_column and the rows of the tile must not"},
       {[](Op& o) { o.first_column = absurd; }, "first_column and the rows of the tile must not"},
       // The last float of each, and the first.
       {[](Op& o) { o.weights.sums = o.tile.state + 3 * 4 * 18 - 1; },
        "weights.sums must not overlap state"},
       {[](Op& o) { o.tile.state = o.weights.sums + 2 * 100 - 1; },
        "weights.sums must not overlap state"},
       {[](Op& o) { o.weights.sums = as<float>(o.tile.query + 3 * query_floats + 3); },
        "weights.sums must not overlap query"}});
  Op shared = op;
  shared.tile.state = as<float>(shared.tile.query);
  shared.tile.output = shared.weights.sums;
  EXPECT_TRUE(validate(shared).has_value()) << "what is read may overlap; output is not used";
  Op none = op;
  none.tile.tokens = 0;
  none.weights.sums = nullptr;
  EXPECT_TRUE(validate(none).has_value()) << "there are no tokens to sum over";
  Op nothing = op;
  nothing.tile.row_count = 0;
  nothing.weights.sums = nullptr;
  EXPECT_TRUE(validate(nothing).has_value()) << "there are no rows";
}

TEST_F(OpArguments, OfTileAttention) {
  const TileAttention op{.shape = shape,
                         .query = room<float>(),
                         .query_stride = query_floats + 2,
                         .tokens = 3,
                         .rows = blocks(),
                         .row_count = 60,
                         .seen = -1,
                         .state = room<float>(),
                         .output = room<float>(),
                         .output_stride = query_floats};
  using Op = TileAttention;
  expect_refused<Op>(
      op,
      {{[](Op& o) { o.shape.head_dim = 0; }, "has a zero"},
       {[](Op& o) { o.query = nullptr; }, "query must be given"},
       {[](Op& o) { o.state = nullptr; }, "state must be given"},
       {[](Op& o) { o.tokens = absurd; }, "tokens must not be above 2^32"},
       {[](Op& o) { o.row_count = absurd; }, "row_count must not be above 2^32"},
       {[](Op& o) { o.seen = absurd; }, "seen must be -2^32 to 2^32"},
       {[](Op& o) { o.seen = -static_cast<std::ptrdiff_t>(absurd); }, "seen must be"},
       {[](Op& o) { o.rows.blocks = nullptr; }, "rows must have blocks"},
       {[](Op& o) { o.rows.block_tokens = 0; }, "rows must have blocks"},
       {[](Op& o) { o.query_stride = query_floats - 1; }, "query_stride must not be below"},
       {[](Op& o) { o.output_stride = query_floats - 1; }, "output_stride must not be below"},
       // The last float of each, and the first.
       {[](Op& o) { o.output = o.state + 3 * 4 * 18 - 1; }, "output must not overlap state"},
       {[](Op& o) { o.state = o.output + 3 * query_floats - 1; }, "output must not overlap state"},
       {[](Op& o) { o.output = as<float>(o.query + 3 * query_floats + 3); },
        "output must not overlap query"},
       {[](Op& o) { o.state = as<float>(o.query + 3 * query_floats + 3); },
        "state must not overlap query"},
       {[](Op& o) {
          o.output = nullptr;
          o.query_stride = absurd;
          o.query = as<float>(o.state) - 8;
        },
        "state must not overlap query"}});
  Op beside = op;
  beside.state = as<float>(op.query + 3 * query_floats + 4);
  beside.output = beside.state + 3 * 4 * 18;
  EXPECT_TRUE(validate(beside).has_value());
  Op begun = op;
  begun.output = nullptr;
  begun.output_stride = 0;
  EXPECT_TRUE(validate(begun).has_value()) << "more tiles follow";
  Op alone = op;
  alone.tokens = 1;
  alone.query_stride = alone.output_stride = 0;
  EXPECT_TRUE(validate(alone).has_value()) << "there is no next token";
  Op nothing_seen = op;
  nothing_seen.row_count = 0;
  nothing_seen.rows = {};
  EXPECT_TRUE(validate(nothing_seen).has_value()) << "there are no rows";
  EXPECT_TRUE(validate(Op{.shape = op.shape}).has_value()) << "there are no tokens";
}

}  // namespace
}  // namespace terrace
