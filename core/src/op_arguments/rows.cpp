#include "checks.hpp"

namespace terrace {

using namespace op_arguments;

namespace {

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

/// Where rows are kept, all that this takes is there.
Status require_slots(std::string_view op, const ResolveRows& resolve) {
  const RowSlots& slots = resolve.slots;
  if (slots.count == 0) return {};
  const CachedRows& cached = resolve.cached;
  const std::size_t heads = resolve.shape.kv_heads;
  return require(op, {{slots.count < limit / heads, "slots must be below 2^32"},
                      {cached.numbers != nullptr && cached.blocks != nullptr,
                       "slots need the blocks and numbers of cached rows"},
                      {cached.block_rows > 0 && cached.block_rows % heads == 0,
                       "blocks of slots must have as many rows of each KV head"},
                      {slots.each != nullptr, "slots.each must be given"},
                      {resolve.scope == ListScope::kv_head || resolve.seen != nullptr,
                       "slots need seen where query heads have lists"},
                      {slots.calls != nullptr, "slots.calls must be given"},
                      {resolve.slot_counts != nullptr, "slot_counts must be given"}});
}

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
  View slots;
  View calls;
  View slot_counts;

  explicit ResolveViews(const ResolveRows& op) {
    const std::size_t lists = list_count(op.shape, op.scope);
    const std::size_t entries = lists * op.id_stride;
    ids = {"ids", range_of(op.ids, entries)};
    id_count = {"id_count", range_of(op.id_count, lists)};
    staging = {"staging", range_of(op.staging, entries * op.shape.row_bytes())};
    rows = {"rows", range_of(op.rows, entries)};
    missed = {"missed", range_of(op.missed, entries)};
    missed_count = {"missed_count", range_of(op.missed_count, 1)};
    add_slots(op);
    if (op.scope != ListScope::query_head || op.seen == nullptr) return;
    seen = {"seen", range_of(op.seen, times(op.shape.kv_heads, op.seen_stride))};
    seen_epoch = {"seen_epoch", range_of(op.seen_epoch, 1)};
  }

 private:
  void add_slots(const ResolveRows& op) {
    if (op.slots.count == 0) return;
    const auto heads = static_cast<std::uint32_t>(op.shape.kv_heads);
    const auto last = static_cast<std::uint32_t>(op.slots.count - 1);
    const std::size_t rows = slot_number(op.shape, op.cached, heads - 1, last);
    slots = {"slots.each", range_of(op.slots.each, rows)};
    calls = {"slots.calls", range_of(op.slots.calls, heads)};
    slot_counts = {"slot_counts", range_of(op.slot_counts, heads)};
  }
};

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

Status validate(const ResolveRows& op) {
  constexpr std::string_view name = "resolve_rows";
  TERRACE_TRY(require_resolvable(name, op));
  TERRACE_TRY(require_slots(name, op));
  const ResolveViews views(op);
  return require_apart(name,
                       {views.staging, views.rows, views.missed, views.missed_count, views.seen,
                        views.seen_epoch, views.slots, views.calls, views.slot_counts},
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
  // The caller does not say how many positions the numbers cover: at least one.
  return require_apart(name, {{"target.numbers", range_of(op.target.numbers, op.shape.kv_heads)}},
                       {{"changes", range_of(op.changes, op.count)}});
}

}  // namespace terrace
