#include "checks.hpp"

namespace terrace {

using namespace op_arguments;

namespace {

/// The memory of weights, in strides of lists.
View weights_view(const KvShape& shape, const AttentionWeights& weights) {
  const std::size_t lists = list_count(shape, weights.scope);
  return {"weights.sums",
          range_of(weights.sums, weights.sums == nullptr ? 0 : times(lists, weights.stride))};
}

/// How many entries were selected only the device knows: the stride is compared with what sinks and
/// window take.
Status require_weights(std::string_view name, const DecodeAttention& op) {
  if (op.weights.sums == nullptr) return {};
  const bool of_query_heads = op.weights.scope == ListScope::query_head;
  return require(name,
                 {{of_query_heads || op.scope == ListScope::kv_head,
                   "weights must be of query heads where each query head has a list"},
                  {op.weights.stride >= plus(op.sinks.size(), op.window.size()),
                   "weights.stride must not be below the number of entries"},
                  {op.weights.stride <= limit, "weights.stride must not be above 2^32"},
                  {op.weights_scratch != nullptr, "weights_scratch must be given with weights"}});
}

/// How many entries were selected only the device knows: of scratch counts what sinks and window
/// take.
Status require_attention_apart(std::string_view name, const DecodeAttention& op) {
  const std::size_t lists = list_count(op.shape, op.scope);
  const std::size_t selected = op.selected == nullptr ? 0 : times(lists, op.selected_stride);
  const std::size_t pseudo = op.pseudo.count == nullptr ? 0 : times(lists, op.pseudo.stride);
  const std::size_t scratch =
      attention_scratch_floats(op.shape, op.sinks.size() + op.window.size());
  const std::size_t logits = op.weights.sums == nullptr ? 0 : op.weights.stride;
  return require_apart(
      name,
      {{"output", range_of(op.output, query_floats(op.shape))},
       {"scratch", range_of(op.scratch, scratch)},
       weights_view(op.shape, op.weights),
       {"weights_scratch",
        range_of(op.weights_scratch, attention_weights_scratch_floats(op.shape, logits))}},
      {{"query", range_of(op.query, query_floats(op.shape))},
       {"selected", range_of(op.selected, selected)},
       {"selected_count", range_of(op.selected_count, selected == 0 ? 0 : lists)},
       {"selected_bias", range_of(op.selected_bias, selected)},
       {"pseudo.rows", range_of(op.pseudo.rows, pseudo)},
       {"pseudo.bias", range_of(op.pseudo.bias, pseudo)},
       {"pseudo.count", range_of(op.pseudo.count, pseudo == 0 ? 0 : lists)}});
}

/// How many rows were selected only the device knows.
Status require_rests(std::string_view name, const DecodeAttention& op) {
  const GroupRests& rests = op.rests;
  TERRACE_TRY(require_index(name, op.shape, rests.candidates, rests.index));
  TERRACE_TRY(require_groups(name, rests.groups, rests.index));
  const PseudoTarget& out = rests.pseudo;
  const std::size_t coded = rests.index.first_token + std::min(rests.index.token_count, limit);
  const std::size_t groups = rests.pages().size() * rests.groups.groups;
  TERRACE_TRY(require(
      name, {{op.scope == ListScope::kv_head && op.selected_bias == nullptr &&
                  op.weights.sums == nullptr && op.pseudo.count == nullptr,
              "rests go with lists of KV heads alone, without weights, bias or pseudo-entries"},
             {op.selected != nullptr, "selected must be given with rests"},
             {op.selected_stride <= limit, "selected_stride must not be above 2^32"},
             {rests.candidates.empty() || rests.candidates.end <= coded,
              "candidates must be coded: the index has fewer tokens"},
             {groups <= out.stride, "rests.pseudo.stride must not be below the number of groups"},
             {out.count != nullptr && (groups == 0 || (out.rows != nullptr && out.bias != nullptr)),
              "rests.pseudo must be given"},
             {groups == 0 || rests.means != nullptr, "rests.means must be given"},
             {rests.scratch != nullptr, "rests.scratch must be given"}}));
  const std::size_t heads = op.shape.kv_heads;
  const std::size_t entries = times(heads, out.stride);
  const std::size_t ids = times(heads, op.selected_stride);
  const std::size_t floats =
      estimate_scratch_floats(op.shape, rests.groups, rests.candidates.size());
  return require_apart(
      name,
      {{"rests.means", range_of(rests.means, times(entries, op.shape.row_bytes()))},
       {"rests.pseudo.rows", range_of(out.rows, entries)},
       {"rests.pseudo.bias", range_of(out.bias, entries)},
       {"rests.pseudo.count", range_of(out.count, heads)},
       {"rests.scratch", range_of(rests.scratch, floats)},
       {"output", range_of(op.output, query_floats(op.shape))}},
      {{"query", range_of(op.query, query_floats(op.shape))},
       {"rests.ids", range_of(rests.ids, ids)},
       {"selected_count", range_of(op.selected_count, heads)},
       {"selected", range_of(op.selected, ids)}});
}

/// Checks all of a tile but its output. The tile has at least one token.
Status require_tile(std::string_view name, const TileAttention& op) {
  constexpr auto signed_limit = static_cast<std::ptrdiff_t>(limit);
  return require(
      name, {{op.tokens <= limit, "tokens must not be above 2^32"},
             {op.row_count <= limit, "row_count must not be above 2^32"},
             {op.seen >= -signed_limit && op.seen <= signed_limit, "seen must be -2^32 to 2^32"},
             {op.query != nullptr, "query must be given"},
             {op.state != nullptr, "state must be given"},
             {op.row_count == 0 || is_given(op.rows, op.shape),
              "rows must have blocks of 1 to 2^32 tokens, below 2^64 bytes"},
             {op.tokens == 1 || op.query_stride >= query_floats(op.shape),
              "query_stride must not be below query_heads * head_dim"}});
}

/// The memory of a tile, but for its output and its rows.
struct TileViews {
  View query;
  View state;

  explicit TileViews(const TileAttention& op)
      : query{"query",
              range_of(op.query, strided(op.tokens, op.query_stride, query_floats(op.shape)))},
        state{"state", range_of(op.state, times(op.tokens, tile_state_floats(op.shape, 1)))} {}
};

}  // namespace

Status validate(const DecodeAttention& op) {
  constexpr std::string_view name = "decode_attention";
  TERRACE_TRY(require_shape(name, op.shape));
  TERRACE_TRY(require(name, {{is_range(op.sinks) && is_range(op.window),
                              "sinks and window must be ranges below 2^32"}}));
  const bool resides = !op.sinks.empty() || !op.window.empty();
  const bool estimates = op.pseudo.count != nullptr && op.pseudo.stride > 0;
  TERRACE_TRY(require(
      name,
      {{op.query != nullptr, "query must be given"},
       {op.output != nullptr, "output must be given"},
       {!resides || is_given(op.resident, op.shape),
        "resident must have blocks of 1 to 2^32 tokens, below 2^64 bytes"},
       {op.selected == nullptr || op.selected_count != nullptr, "selected_count must be given"},
       {!estimates || op.pseudo.rows != nullptr, "pseudo.rows must be given"},
       {op.scratch != nullptr || !(resides || estimates || op.selected != nullptr),
        "scratch must be given"}}));
  TERRACE_TRY(require_weights(name, op));
  TERRACE_TRY(require_attention_apart(name, op));
  return op.rests.ids == nullptr ? Status{} : require_rests(name, op);
}

Status validate(const TileAttention& op) {
  constexpr std::string_view name = "tile_attention";
  TERRACE_TRY(require_shape(name, op.shape));
  if (op.tokens == 0) return {};
  TERRACE_TRY(require_tile(name, op));
  const std::size_t packed = query_floats(op.shape);
  TERRACE_TRY(require(name, {{op.tokens == 1 || op.output == nullptr || op.output_stride >= packed,
                              "output_stride must not be below query_heads * head_dim"}}));
  const std::size_t written =
      op.output == nullptr ? 0 : strided(op.tokens, op.output_stride, packed);
  const TileViews views(op);
  return require_apart(name, {{"output", range_of(op.output, written)}, views.state},
                       {views.query});
}

Status validate(const TileWeights& op) {
  constexpr std::string_view name = "tile_weights";
  const TileAttention& tile = op.tile;
  TERRACE_TRY(require_shape(name, tile.shape));
  if (tile.tokens == 0) return {};
  TERRACE_TRY(require_tile(name, tile));
  if (tile.row_count == 0) return {};
  TERRACE_TRY(
      require(name, {{op.weights.sums != nullptr, "weights.sums must be given"},
                     {op.weights.stride <= limit, "weights.stride must not be above 2^32"},
                     {plus(op.first_column, tile.row_count) <= op.weights.stride,
                      "first_column and the rows of the tile must not be above weights.stride"}}));
  const TileViews views(tile);
  return require_apart(name, {weights_view(tile.shape, op.weights)}, {views.query, views.state});
}

}  // namespace terrace
