// Checks of the arguments of ops, in the order of terrace/core/ops.hpp.
// tidy-allow(length): one list of checks, as there is one list of arguments.
#include "terrace/core/op_arguments.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string_view>

#include "terrace/core/memory_range.hpp"

namespace terrace {
namespace {

constexpr std::size_t limit = std::size_t{1} << 32;  // ids are 32-bit
// So that the sizes of what is worked in fit in 64 bits.
constexpr std::size_t heads_max = std::size_t{1} << 24;

struct Requirement {
  bool met;
  std::string_view text;
};

/// Names the first requirement that is not met.
Status require(std::string_view op, std::initializer_list<Requirement> requirements) {
  const auto* const broken = std::ranges::find(requirements, false, &Requirement::met);
  if (broken == requirements.end()) return {};
  return fail(Errc::invalid_argument, "{}: {}", op, broken->text);
}

/// Memory that an op is given, by the name it has there.
struct View {
  std::string_view name;
  MemoryRange memory;
};
using Views = std::initializer_list<View>;

tl::unexpected<Error> overlapping(std::string_view op, const View& written, const View& other) {
  return fail(Errc::invalid_argument, "{}: {} must not overlap {}", op, written.name, other.name);
}

/// Memory that an op writes overlaps nothing else that the op is given; memory only read may
/// overlap.
Status require_apart(std::string_view op, Views written, Views read) {
  for (const View* each = written.begin(); each != written.end(); ++each) {
    for (const View* other = each + 1; other != written.end(); ++other) {
      if (overlap(each->memory, other->memory)) return overlapping(op, *each, *other);
    }
    for (const View& other : read) {
      if (overlap(each->memory, other.memory)) return overlapping(op, *each, other);
    }
  }
  return {};
}

/// Returns a product, or the largest number where it would wrap.
std::size_t times(std::size_t a, std::size_t b) {
  std::size_t product = 0;
  const bool wraps = __builtin_mul_overflow(a, b, &product);
  return wraps ? std::numeric_limits<std::size_t>::max() : product;
}

/// Returns a sum, or the largest number where it would wrap.
std::size_t plus(std::size_t a, std::size_t b) {
  std::size_t sum = 0;
  const bool wraps = __builtin_add_overflow(a, b, &sum);
  return wraps ? std::numeric_limits<std::size_t>::max() : sum;
}

bool is_range(TokenRange tokens) { return tokens.begin <= tokens.end && tokens.end <= limit; }

std::size_t query_floats(const KvShape& shape) { return shape.query_heads * shape.head_dim; }

Status require_shape(std::string_view op, const KvShape& shape) {
  if (const Status right = shape.validate(); !right) {
    return tl::unexpected(right.error().while_doing(op));
  }
  return require(op,
                 {{shape.query_heads <= heads_max, "shape.query_heads must not be above 2^24"}});
}

/// For ops that copy rows and compute nothing with them: such rows may have any length.
Status require_rows(std::string_view op, const KvShape& shape) {
  return require(
      op, {{shape.kv_heads > 0 && shape.kv_heads <= limit, "shape.kv_heads must be 1 to 2^32"},
           {shape.head_dim > 0 && shape.head_dim <= limit, "shape.head_dim must be 1 to 2^32"}});
}

bool is_given(const BlockTable& table, const KvShape& shape) {
  return table.blocks != nullptr && table.block_tokens > 0 && table.block_tokens <= limit &&
         shape.block_bytes(table.block_tokens).has_value();
}

Status require_index(std::string_view op, const KvShape& shape, TokenRange tokens,
                     const IndexView& index) {
  TERRACE_TRY(require_shape(op, shape));
  return require(op, {{is_range(tokens), "tokens must be a range below 2^32"},
                      {index.chunk_tokens > 0 && index.chunk_tokens <= limit,
                       "the index must have chunks of 1 to 2^32 tokens"},
                      {tokens.empty() || index.chunks != nullptr, "the index must be given"},
                      {tokens.empty() || index.first_token <= tokens.begin,
                       "tokens must not begin before the index"}});
}

Status require_codes(std::string_view op, const KvShape& shape, const PqShape& pq,
                     const IndexView& index) {
  return require(op, {{pq.subspaces > 0 && shape.head_dim % pq.subspaces == 0,
                       "pq.subspaces must divide head_dim"},
                      {pq.bits >= 1 && pq.bits <= 8, "pq.bits must be 1 to 8"},
                      {index.fixed != nullptr, "the index must have codebooks"}});
}

Status require_groups(std::string_view op, const GroupShape& groups, const IndexView& index) {
  return require(op,
                 {{groups.page_tokens > 0 && index.chunk_tokens % groups.page_tokens == 0,
                   "groups.page_tokens must divide index.chunk_tokens"},
                  {groups.page_tokens <= GroupShape::page_tokens_max,
                   "groups.page_tokens must not be above 256"},
                  {groups.groups >= 1 && groups.groups <= 255, "groups.groups must be 1 to 255"},
                  {groups.chunk_begin % 4 == 0, "groups.chunk_begin must be a multiple of 4"}});
}

Status require_selection(std::string_view op, const SelectCommon& common, const IndexView& index) {
  TERRACE_TRY(require_index(op, common.shape, common.candidates, index));
  const std::size_t coded = index.first_token + std::min(index.token_count, limit);
  const std::size_t listed = std::min(common.count.mean, common.candidates.size());
  return require(
      op, {{common.candidates.empty() || common.candidates.end <= coded,
            "candidates must be coded: the index has fewer tokens"},
           {common.id_count != nullptr, "id_count must be given"},
           {listed == 0 || common.ids != nullptr, "ids must be given"},
           {listed <= common.id_stride, "count must not be above id_stride"},
           {common.candidates.empty() || common.query != nullptr, "query must be given"},
           {common.candidates.empty() || common.scratch != nullptr, "scratch must be given"}});
}

/// The memory of a selection, but for the index.
struct SelectionViews {
  View ids;
  View id_count;
  View scratch;
  View query;
  View shares;

  SelectionViews(const SelectCommon& common, std::size_t lists, std::size_t scratch_floats)
      : ids{"ids", range_of(common.ids, times(lists, common.id_stride))},
        id_count{"id_count", range_of(common.id_count, lists)},
        scratch{"scratch", range_of(common.scratch, scratch_floats)},
        query{"query", range_of(common.query, query_floats(common.shape))},
        shares{"count.shares", range_of(common.count.shares, common.shape.kv_heads)} {}
};

/// Lists of no entries name no rows: what says where rows are may be missing.
Status require_resolvable(std::string_view op, const ResolveRows& resolve) {
  TERRACE_TRY(require_shape(op, resolve.shape));
  const bool none = resolve.id_stride == 0;
  const std::size_t lists = list_count(resolve.shape, resolve.scope);
  const bool remembers = resolve.scope == ListScope::query_head && resolve.seen != nullptr;
  const CachedRows& cached = resolve.cached;
  return require(op,
                 {{resolve.id_count != nullptr, "id_count must be given"},
                  {resolve.missed_count != nullptr, "missed_count must be given"},
                  {resolve.id_stride < limit / lists, "lists * id_stride must be below 2^32"},
                  {none || resolve.ids != nullptr, "ids must be given"},
                  {none || is_given(resolve.resident, resolve.shape),
                   "resident must have blocks of 1 to 2^32 tokens, below 2^64 bytes"},
                  {cached.numbers == nullptr || (cached.blocks != nullptr && cached.block_rows > 0),
                   "cached must have blocks of at least 1 row"},
                  {none || resolve.staging != nullptr, "staging must be given"},
                  {none || resolve.rows != nullptr, "rows must be given"},
                  {none || resolve.missed != nullptr, "missed must be given"},
                  {!remembers || (resolve.seen_epoch != nullptr && resolve.seen_stride > 0),
                   "seen needs seen_epoch and seen_stride"}});
}

/// The memory of resolving, but for tables and what they point to. Rows are fetched into `staging`
/// while the others are still needed.
struct ResolveViews {
  View ids;
  View id_count;
  View staging;
  View rows;
  View missed;
  View missed_count;
  View seen;
  View seen_epoch;

  explicit ResolveViews(const ResolveRows& op) {
    const std::size_t lists = list_count(op.shape, op.scope);
    const std::size_t entries = lists * op.id_stride;
    ids = {"ids", range_of(op.ids, entries)};
    id_count = {"id_count", range_of(op.id_count, lists)};
    staging = {"staging", range_of(op.staging, entries * op.shape.row_bytes())};
    rows = {"rows", range_of(op.rows, entries)};
    missed = {"missed", range_of(op.missed, entries)};
    missed_count = {"missed_count", range_of(op.missed_count, 1)};
    if (op.scope != ListScope::query_head || op.seen == nullptr) return;
    seen = {"seen", range_of(op.seen, times(op.shape.kv_heads, op.seen_stride))};
    seen_epoch = {"seen_epoch", range_of(op.seen_epoch, 1)};
  }
};

Status require_clusters_apart(std::string_view name, const ClusterSelect& op) {
  const KvShape& shape = op.common.shape;
  const std::size_t chunks =
      divide_up(std::min(op.index.token_count, limit), op.clusters.chunk_tokens);
  TERRACE_TRY(require(name, {{op.index.token_count <= limit && chunks <= limit / op.clusters.slots,
                              "the index must have at most 2^32 tokens and clusters"}}));
  const std::size_t lists = list_count(shape, op.scope);
  const std::size_t pseudo = op.estimated == 0 ? 0 : times(lists, op.pseudo.stride);
  const SelectionViews views(op.common, lists,
                             cluster_scratch_floats(shape, op.clusters, op.index.token_count));
  return require_apart(name,
                       {views.ids,
                        views.id_count,
                        views.scratch,
                        {"pseudo.rows", range_of(op.pseudo.rows, pseudo)},
                        {"pseudo.bias", range_of(op.pseudo.bias, pseudo)},
                        {"pseudo.count", range_of(op.pseudo.count, pseudo == 0 ? 0 : lists)}},
                       {views.query, views.shares});
}

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

/// Returns how far it is from the begin of the first token's vectors to the end of the last one's,
/// all being `each` long and `stride` apart; `tokens` is not 0.
std::size_t strided(std::size_t tokens, std::size_t stride, std::size_t each) {
  return plus(times(tokens - 1, stride), each);
}

/// Checks all of a tile but its output. There is a token.
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

/// Whether each number of tokens is at a multiple of its size. A device reads none elsewhere.
bool is_aligned(const std::byte* first, std::size_t stride, std::size_t tokens, Dtype dtype) {
  const auto address = reinterpret_cast<std::uintptr_t>(first);
  return (tokens == 1 ? address : address | stride) % size_bytes(dtype) == 0;
}

/// Reading a table of blocks takes little beside copying to them.
Status require_target(std::string_view name, const StoreRows& op) {
  const KvTensors& source = op.source;
  const std::size_t to_last_key = plus(times(op.tokens.size() - 1, source.token_stride),
                                       times(op.shape.kv_heads - 1, source.head_stride));
  const std::size_t span_bytes = plus(to_last_key, op.shape.row_bytes() / 2);
  const View keys{"source.keys", range_of(source.keys, span_bytes)};
  const View values{"source.values", range_of(source.values, span_bytes)};
  const std::size_t block_tokens = op.target.block_tokens;
  TERRACE_ASSIGN(const std::size_t block_bytes, op.shape.block_bytes(block_tokens));
  for (std::size_t i = op.tokens.begin / block_tokens; i * block_tokens < op.tokens.end; ++i) {
    const View block{"a block of target", range_of(op.target.blocks[i], block_bytes)};
    TERRACE_TRY(require(name, {{op.target.blocks[i] != nullptr, "target must have every block"}}));
    TERRACE_TRY(require_apart(name, {block}, {keys, values}));
  }
  return {};
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

}  // namespace

Status validate(const StoreRows& op) {
  constexpr std::string_view name = "store_rows";
  TERRACE_TRY(require_rows(name, op.shape));
  TERRACE_TRY(require(name, {{is_range(op.tokens), "tokens must be a range below 2^32"}}));
  if (op.tokens.empty()) return {};
  const KvTensors& source = op.source;
  const std::size_t key_bytes = op.shape.row_bytes() / 2;
  TERRACE_TRY(require(name, {{source.keys != nullptr, "source.keys must be given"},
                             {source.values != nullptr, "source.values must be given"},
                             {op.tokens.size() == 1 || source.token_stride >= key_bytes,
                              "source.token_stride must not be below the bytes of a key"},
                             {op.shape.kv_heads == 1 || source.head_stride >= key_bytes,
                              "source.head_stride must not be below the bytes of a key"},
                             {is_given(op.target, op.shape),
                              "target must have blocks of 1 to 2^32 tokens, below 2^64 bytes"}}));
  return require_target(name, op);
}

Status validate(const PqSelect& op) {
  constexpr std::string_view name = "pq_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  TERRACE_TRY(require_codes(name, op.common.shape, op.pq, op.index));
  const KvShape& shape = op.common.shape;
  const SelectionViews views(op.common, shape.kv_heads,
                             selection_scratch_floats(shape, op.common.candidates.size()));
  const std::size_t codebook_floats = shape.kv_heads * op.pq.centroids() * shape.head_dim;
  const View codebooks{"index.fixed", range_of(op.index.fixed, codebook_floats * sizeof(float))};
  return require_apart(name, {views.ids, views.id_count, views.scratch},
                       {views.query, views.shares, codebooks});
}

Status validate(const ExactSelect& op) {
  constexpr std::string_view name = "exact_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const SelectionViews views(
      op.common, op.common.shape.kv_heads,
      selection_scratch_floats(op.common.shape, op.common.candidates.size()));
  return require_apart(name, {views.ids, views.id_count, views.scratch},
                       {views.query, views.shares});
}

Status validate(const ChannelSelect& op) {
  constexpr std::string_view name = "channel_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const KvShape& shape = op.common.shape;
  const std::size_t count = op.channels.count;
  TERRACE_TRY(
      require(name, {{count > 0 && count <= shape.head_dim, "channels.count must be 1 to head_dim"},
                     {!op.channels.partial || op.index.fixed != nullptr,
                      "an index that is partial must say which channels it has"}}));
  const auto* const stored = reinterpret_cast<const std::uint32_t*>(op.index.fixed);
  const SelectionViews views(op.common, shape.kv_heads,
                             selection_scratch_floats(shape, op.common.candidates.size()));
  return require_apart(
      name, {views.ids, views.id_count, views.scratch},
      {views.query,
       views.shares,
       {"index.fixed", range_of(stored, op.channels.partial ? shape.kv_heads * count : 0)}});
}

Status validate(const MapQueries& op) {
  constexpr std::string_view name = "map_queries";
  TERRACE_TRY(require_shape(name, op.shape));
  TERRACE_TRY(require(name, {{op.query != nullptr, "query must be given"},
                             {op.maps != nullptr, "maps must be given"},
                             {op.mapped != nullptr, "mapped must be given"}}));
  const std::size_t floats = query_floats(op.shape);
  const std::size_t map_floats = op.shape.kv_heads * op.shape.head_dim * op.shape.head_dim;
  return require_apart(
      name, {{"mapped", range_of(op.mapped, floats)}},
      {{"query", range_of(op.query, floats)}, {"maps", range_of(op.maps, map_floats)}});
}

Status validate(const ConvertQueries& op) {
  constexpr std::string_view name = "convert_queries";
  TERRACE_TRY(require_shape(name, op.shape));
  if (op.tokens == 0) return {};
  const std::size_t read = query_floats(op.shape) * size_bytes(op.from);
  const std::size_t written = query_floats(op.shape) * size_bytes(op.to);
  TERRACE_TRY(
      require(name, {{op.tokens <= limit, "tokens must not be above 2^32"},
                     {op.source != nullptr, "source must be given"},
                     {op.target != nullptr, "target must be given"},
                     {op.tokens == 1 || op.source_stride >= read,
                      "source_stride must not be below the bytes of a token"},
                     {op.tokens == 1 || op.target_stride >= written,
                      "target_stride must not be below the bytes of a token"},
                     {is_aligned(op.source, op.source_stride, op.tokens, op.from),
                      "source and source_stride must be multiples of the size of a number"},
                     {is_aligned(op.target, op.target_stride, op.tokens, op.to),
                      "target and target_stride must be multiples of the size of a number"}}));
  return require_apart(
      name, {{"target", range_of(op.target, strided(op.tokens, op.target_stride, written))}},
      {{"source", range_of(op.source, strided(op.tokens, op.source_stride, read))}});
}

Status validate(const PageSelect& op) {
  constexpr std::string_view name = "page_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  TERRACE_TRY(
      require(name, {{op.pages.page_tokens > 0 && op.index.chunk_tokens % op.pages.page_tokens == 0,
                      "pages.page_tokens must divide index.chunk_tokens"}}));
  const KvShape& shape = op.common.shape;
  const SelectionViews views(op.common, shape.kv_heads,
                             page_scratch_floats(shape, op.pages, op.common.candidates.size()));
  return require_apart(name, {views.ids, views.id_count, views.scratch},
                       {views.query, views.shares});
}

Status validate(const ClusterSelect& op) {
  constexpr std::string_view name = "cluster_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const bool estimates = op.clusters.estimates;
  TERRACE_TRY(require(
      name,
      {{op.clusters.slots > 0 && op.clusters.slots <= limit, "clusters.slots must be 1 to 2^32"},
       {op.clusters.chunk_tokens == op.index.chunk_tokens,
        "clusters.chunk_tokens must be the index's"},
       {estimates || (op.estimated == 0 && !op.spreads),
        "estimated and spreads need clusters.estimates"},
       {op.estimated == 0 || op.scope == ListScope::kv_head, "estimates are per KV head"},
       {op.estimated == 0 ||
            (op.pseudo.rows != nullptr && op.pseudo.bias != nullptr && op.pseudo.count != nullptr),
        "pseudo must be given"},
       {op.estimated <= op.pseudo.stride, "estimated must not be above pseudo.stride"},
       {op.mass_wanted <= 0 || op.resident.blocks != nullptr, "mass_wanted needs resident"},
       {op.resident.blocks == nullptr || op.resident.block_tokens > 0,
        "resident.block_tokens must not be 0"},
       {is_range(op.sinks) && is_range(op.window), "sinks and window must be ranges below 2^32"}}));
  return require_clusters_apart(name, op);
}

Status validate(const RefineSelect& op) {
  constexpr std::string_view name = "refine_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const KvShape& shape = op.common.shape;
  const RefineShape& codes = op.codes;
  if (codes.pq.subspaces > 0) TERRACE_TRY(require_codes(name, shape, codes.pq, op.index));
  TERRACE_TRY(
      require(name, {{codes.bits == 1 || codes.bits == 2, "codes.bits must be 1 or 2"},
                     {codes.chunk_begin % 4 == 0, "codes.chunk_begin must be a multiple of 4"},
                     {op.proposed_count != nullptr, "proposed_count must be given"},
                     {op.proposed_stride == 0 || op.proposed != nullptr, "proposed must be given"},
                     {op.proposed_stride <= limit, "proposed_stride must not be above 2^32"}}));
  const SelectionViews views(op.common, shape.kv_heads,
                             refine_scratch_floats(shape, op.proposed_stride));
  return require_apart(
      name, {views.ids, views.id_count, views.scratch},
      {views.query,
       views.shares,
       {"proposed", range_of(op.proposed, times(shape.kv_heads, op.proposed_stride))},
       {"proposed_count", range_of(op.proposed_count, shape.kv_heads)}});
}

Status validate(const SignSelect& op) {
  constexpr std::string_view name = "sign_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const SignShape& signs = op.signs;
  TERRACE_TRY(require_groups(name, signs.groups, op.index));
  TERRACE_TRY(require(
      name, {{signs.groups.page_tokens % 64 == 0, "groups.page_tokens must be a multiple of 64"},
             {signs.chunk_begin % 4 == 0, "signs.chunk_begin must be a multiple of 4"}}));
  const SelectionViews views(
      op.common, op.common.shape.kv_heads,
      selection_scratch_floats(op.common.shape, op.common.candidates.size()));
  return require_apart(name, {views.ids, views.id_count, views.scratch},
                       {views.query, views.shares});
}

Status validate(const ResolveRows& op) {
  constexpr std::string_view name = "resolve_rows";
  TERRACE_TRY(require_resolvable(name, op));
  const ResolveViews views(op);
  return require_apart(
      name,
      {views.staging, views.rows, views.missed, views.missed_count, views.seen, views.seen_epoch},
      {views.ids, views.id_count});
}

Status validate(const FetchRows& op) {
  constexpr std::string_view name = "fetch_rows";
  TERRACE_TRY(require_rows(name, op.shape));
  return require(name, {{op.missed != nullptr, "missed must be given"},
                        {op.missed_count != nullptr, "missed_count must be given"},
                        {is_given(op.source, op.shape),
                         "source must have blocks of 1 to 2^32 tokens, below 2^64 bytes"}});
}

Status validate(const CacheRows& op) {
  constexpr std::string_view name = "cache_rows";
  TERRACE_TRY(require_rows(name, op.shape));
  if (op.count == 0) return {};
  // Changes need not be arrivals, and those need not be staged: no staging may be given.
  TERRACE_TRY(require(name, {{op.changes != nullptr, "changes must be given"},
                             {is_given(op.source, op.shape),
                              "source must have blocks of 1 to 2^32 tokens, below 2^64 bytes"},
                             {op.target.numbers != nullptr, "target.numbers must be given"},
                             {op.target.blocks != nullptr && op.target.block_rows > 0,
                              "target must have blocks of at least 1 row"}}));
  // Nobody says how many positions there are numbers of: there is one at least.
  return require_apart(name, {{"target.numbers", range_of(op.target.numbers, op.shape.kv_heads)}},
                       {{"changes", range_of(op.changes, op.count)}});
}

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
  TERRACE_TRY(require(name, {{op.token_begin <= tile.tokens,
                              "token_begin must not be above the number of tokens"}}));
  if (op.token_begin == tile.tokens) return {};
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

Error error_of_call(const Error& error, std::size_t call, std::size_t calls) noexcept {
  std::array<char, 64> place{};
  const auto end = fmt::format_to_n(place.data(), place.size(), "call {} of {}", call, calls).out;
  return error.while_doing({place.data(), end});
}

}  // namespace terrace
