#include "sim_ops.hpp"

#include <numeric>

#include "terrace/core/op_arguments.hpp"

namespace terrace::offload {
namespace {

template <typename Arguments>
std::size_t nothing(const Arguments& /*call*/) {
  return 0;
}

std::size_t stored_bytes(const StoreRows& call) {
  return call.crosses_link ? call.tokens.size() * call.shape.token_bytes() : 0;
}

std::size_t cached_bytes(const CacheRows& call) { return call.count * call.shape.row_bytes(); }

/// Enqueues a piece that costs a call's time and moves bytes_of(call) of each call across the link.
template <auto bytes_of, typename Arguments>
Result<Ticket> enqueue_costs(Queue& queue, Phase phase, std::span<const Arguments> batch) {
  TERRACE_TRY(validate(batch));
  const std::size_t bytes =
      std::transform_reduce(batch.begin(), batch.end(), std::size_t{0}, std::plus<>(), bytes_of);
  return queue.call(phase, [bytes] { return bytes; });
}

template <typename Arguments>
constexpr auto compute = enqueue_costs<nothing<Arguments>, Arguments>;

// fetch_rows costs its phase's time: how many rows are missed is known only where bytes are.
constexpr Ops sim_table{.store_rows = enqueue_costs<stored_bytes, StoreRows>,
                        .pq_select = compute<PqSelect>,
                        .exact_select = compute<ExactSelect>,
                        .channel_select = compute<ChannelSelect>,
                        .map_queries = compute<MapQueries>,
                        .convert_queries = compute<ConvertQueries>,
                        .page_select = compute<PageSelect>,
                        .cluster_select = compute<ClusterSelect>,
                        .refine_select = compute<RefineSelect>,
                        .sign_select = compute<SignSelect>,
                        .resolve_rows = compute<ResolveRows>,
                        .fetch_rows = compute<FetchRows>,
                        .cache_rows = enqueue_costs<cached_bytes, CacheRows>,
                        .decode_attention = compute<DecodeAttention>,
                        .tile_attention = compute<TileAttention>,
                        .tile_weights = compute<TileWeights>};

}  // namespace

const Ops& sim_ops() noexcept { return sim_table; }

}  // namespace terrace::offload
