#include "sim_ops.hpp"

#include "terrace/core/op_arguments.hpp"

namespace terrace::offload {
namespace {

template <typename Arguments>
Result<Ticket> compute(Queue& queue, Phase phase, const Arguments& arguments) {
  TERRACE_TRY(validate(arguments));
  return queue.call(phase, [] { return std::size_t{0}; });
}

Result<Ticket> store_rows(Queue& queue, Phase phase, const StoreRows& rows) {
  TERRACE_TRY(validate(rows));
  const std::size_t bytes = rows.crosses_link ? rows.tokens.size() * rows.shape.token_bytes() : 0;
  return queue.call(phase, [bytes] { return bytes; });
}

Result<Ticket> cache_rows(Queue& queue, Phase phase, const CacheRows& rows) {
  TERRACE_TRY(validate(rows));
  const std::size_t bytes = rows.count * rows.shape.row_bytes();
  return queue.call(phase, [bytes] { return bytes; });
}

// fetch_rows costs its phase's time: how many rows are missed is known only where bytes are.
constexpr Ops table{.store_rows = store_rows,
                    .pq_select = compute<PqSelect>,
                    .exact_select = compute<ExactSelect>,
                    .map_queries = compute<MapQueries>,
                    .page_select = compute<PageSelect>,
                    .cluster_select = compute<ClusterSelect>,
                    .resolve_rows = compute<ResolveRows>,
                    .fetch_rows = compute<FetchRows>,
                    .cache_rows = cache_rows,
                    .decode_attention = compute<DecodeAttention>};

}  // namespace

const Ops& sim_ops() noexcept { return table; }

}  // namespace terrace::offload
