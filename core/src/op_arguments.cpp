#include "terrace/core/op_arguments.hpp"

#include <algorithm>
#include <initializer_list>
#include <string_view>

namespace terrace {
namespace {

constexpr std::size_t limit = std::size_t{1} << 32;  // ids are 32-bit

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

bool is_range(TokenRange tokens) { return tokens.begin <= tokens.end && tokens.end <= limit; }

Status require_shape(std::string_view op, const KvShape& shape) {
  return shape.validate().map_error([&](const Error& error) { return error.while_doing(op); });
}

/// What copies rows computes nothing with them: they may have any length.
Status require_rows(std::string_view op, const KvShape& shape) {
  return require(
      op, {{shape.kv_heads > 0 && shape.kv_heads <= limit, "shape.kv_heads must be 1 to 2^32"},
           {shape.head_dim > 0 && shape.head_dim <= limit, "shape.head_dim must be 1 to 2^32"}});
}

bool is_given(const BlockTable& table) {
  return table.blocks != nullptr && table.block_tokens > 0 && table.block_tokens <= limit;
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

Status require_selection(std::string_view op, const SelectCommon& common, const IndexView& index) {
  TERRACE_TRY(require_index(op, common.shape, common.candidates, index));
  const std::size_t listed = std::min(common.count.mean, common.candidates.size());
  return require(
      op, {{common.id_count != nullptr, "id_count must be given"},
           {listed == 0 || common.ids != nullptr, "ids must be given"},
           {listed <= common.id_stride, "count must not be above id_stride"},
           {common.candidates.empty() || common.query != nullptr, "query must be given"},
           {common.candidates.empty() || common.scratch != nullptr, "scratch must be given"}});
}

/// Lists of no entries name no rows: what says where rows are may be missing.
Status require_resolvable(std::string_view op, const ResolveRows& resolve) {
  TERRACE_TRY(require_shape(op, resolve.shape));
  const bool none = resolve.id_stride == 0;
  const std::size_t lists = list_count(resolve.shape, resolve.scope);
  const bool remembers = resolve.scope == ListScope::query_head && resolve.seen != nullptr;
  const CachedRows& cached = resolve.cached;
  return require(
      op, {{resolve.id_count != nullptr, "id_count must be given"},
           {resolve.missed_count != nullptr, "missed_count must be given"},
           {resolve.id_stride < limit / lists, "lists * id_stride must be below 2^32"},
           {none || resolve.ids != nullptr, "ids must be given"},
           {none || is_given(resolve.resident), "resident must have blocks of 1 to 2^32 tokens"},
           {cached.numbers == nullptr || (cached.blocks != nullptr && cached.block_rows > 0),
            "cached must have blocks of at least 1 row"},
           {none || resolve.staging != nullptr, "staging must be given"},
           {none || resolve.rows != nullptr, "rows must be given"},
           {none || resolve.missed != nullptr, "missed must be given"},
           {!remembers || (resolve.seen_epoch != nullptr && resolve.seen_stride > 0),
            "seen needs seen_epoch and seen_stride"}});
}

}  // namespace

Status validate(const StoreRows& op) {
  constexpr std::string_view name = "store_rows";
  TERRACE_TRY(require_rows(name, op.shape));
  TERRACE_TRY(require(name, {{is_range(op.tokens), "tokens must be a range below 2^32"}}));
  if (op.tokens.empty()) return {};
  const KvTensors& source = op.source;
  const std::size_t key_bytes = op.shape.row_bytes() / 2;
  return require(name, {{source.keys != nullptr, "source.keys must be given"},
                        {source.values != nullptr, "source.values must be given"},
                        {op.tokens.size() == 1 || source.token_stride >= key_bytes,
                         "source.token_stride must not be below the bytes of a key"},
                        {op.shape.kv_heads == 1 || source.head_stride >= key_bytes,
                         "source.head_stride must not be below the bytes of a key"},
                        {is_given(op.target), "target must have blocks of 1 to 2^32 tokens"}});
}

Status validate(const PqSelect& op) {
  constexpr std::string_view name = "pq_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  return require_codes(name, op.common.shape, op.pq, op.index);
}

Status validate(const ExactSelect& op) {
  return require_selection("exact_select", op.common, op.index);
}

Status validate(const MapQueries& op) {
  constexpr std::string_view name = "map_queries";
  TERRACE_TRY(require_shape(name, op.shape));
  return require(name, {{op.query != nullptr, "query must be given"},
                        {op.maps != nullptr, "maps must be given"},
                        {op.mapped != nullptr, "mapped must be given"},
                        {op.mapped != op.query, "mapped must not be query"}});
}

Status validate(const PageSelect& op) {
  constexpr std::string_view name = "page_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  return require(name,
                 {{op.pages.page_tokens > 0 && op.index.chunk_tokens % op.pages.page_tokens == 0,
                   "pages.page_tokens must divide index.chunk_tokens"}});
}

Status validate(const ClusterSelect& op) {
  constexpr std::string_view name = "cluster_select";
  TERRACE_TRY(require_selection(name, op.common, op.index));
  const bool estimates = op.clusters.estimates;
  return require(
      name,
      {{op.clusters.slots > 0 && op.clusters.slots <= limit, "clusters.slots must be 1 to 2^32"},
       {op.clusters.chunk_tokens == op.index.chunk_tokens,
        "clusters.chunk_tokens must be the index's"},
       {estimates || (op.estimated == 0 && op.mass == nullptr && !op.spreads),
        "estimated, mass and spreads need clusters.estimates"},
       {op.estimated == 0 || op.scope == ListScope::kv_head, "estimates are per KV head"},
       {op.estimated == 0 ||
            (op.pseudo.rows != nullptr && op.pseudo.bias != nullptr && op.pseudo.count != nullptr),
        "pseudo must be given"},
       {op.estimated <= op.pseudo.stride, "estimated must not be above pseudo.stride"},
       {op.mass == nullptr || op.resident.blocks != nullptr, "mass needs resident"},
       {op.resident.blocks == nullptr || op.resident.block_tokens > 0,
        "resident.block_tokens must not be 0"},
       {is_range(op.sinks) && is_range(op.window), "sinks and window must be ranges below 2^32"}});
}

Status validate(const ResolveRows& op) { return require_resolvable("resolve_rows", op); }

Status validate(const ResolveEarlyRows& op) {
  constexpr std::string_view name = "resolve_early_rows";
  TERRACE_TRY(require_resolvable(name, op.resolve));
  const bool none = op.resolve.id_stride == 0;
  const bool early = op.early_ids != nullptr;
  return require(name, {{none || op.ids != nullptr, "ids must be given"},
                        {op.id_count != nullptr, "id_count must be given"},
                        {!early || op.early_count != nullptr, "early_count must be given"},
                        {!early || op.early_rows != nullptr, "early_rows must be given"},
                        {!early || op.early_staging != nullptr, "early_staging must be given"},
                        {!early || op.early_missed != nullptr, "early_missed must be given"},
                        {none || op.early_used != nullptr, "early_used must be given"},
                        {op.query != nullptr, "query must be given"},
                        {op.last_query != nullptr, "last_query must be given"},
                        {op.outcome != nullptr, "outcome must be given"}});
}

Status validate(const FetchRows& op) {
  constexpr std::string_view name = "fetch_rows";
  TERRACE_TRY(require_rows(name, op.shape));
  return require(name, {{op.missed != nullptr, "missed must be given"},
                        {op.missed_count != nullptr, "missed_count must be given"},
                        {is_given(op.source), "source must have blocks of 1 to 2^32 tokens"}});
}

Status validate(const CacheRows& op) {
  constexpr std::string_view name = "cache_rows";
  TERRACE_TRY(require_rows(name, op.shape));
  if (op.count == 0) return {};
  // Changes need not be arrivals, and those need not be staged: no staging may be given.
  return require(name, {{op.changes != nullptr, "changes must be given"},
                        {is_given(op.source), "source must have blocks of 1 to 2^32 tokens"},
                        {op.target.numbers != nullptr, "target.numbers must be given"},
                        {op.target.blocks != nullptr && op.target.block_rows > 0,
                         "target must have blocks of at least 1 row"}});
}

Status validate(const DecodeAttention& op) {
  constexpr std::string_view name = "decode_attention";
  TERRACE_TRY(require_shape(name, op.shape));
  TERRACE_TRY(require(name, {{is_range(op.sinks) && is_range(op.window),
                              "sinks and window must be ranges below 2^32"}}));
  const bool resides = !op.sinks.empty() || !op.window.empty();
  const bool estimates = op.pseudo.count != nullptr && op.pseudo.stride > 0;
  return require(
      name,
      {{op.query != nullptr, "query must be given"},
       {op.output != nullptr, "output must be given"},
       {!resides || is_given(op.resident), "resident must have blocks of 1 to 2^32 tokens"},
       {op.selected == nullptr || op.selected_count != nullptr, "selected_count must be given"},
       {!estimates || op.pseudo.rows != nullptr, "pseudo.rows must be given"},
       {op.scratch != nullptr || !(resides || estimates || op.selected != nullptr),
        "scratch must be given"}});
}

}  // namespace terrace
