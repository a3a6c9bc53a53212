#include "terrace/offload/host_ops.hpp"

#include <utility>

#include "op_calls.hpp"
#include "terrace/core/op_arguments.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/calls.hpp"
#include "terrace/kernels/cluster_select.hpp"
#include "terrace/kernels/convert_queries.hpp"
#include "terrace/kernels/map_vectors.hpp"
#include "terrace/kernels/page_select.hpp"
#include "terrace/kernels/refine.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/select.hpp"
#include "terrace/kernels/signs.hpp"

namespace terrace::offload {
namespace {

namespace host = kernels::host;

std::size_t store_rows(const StoreRows& call, Parallel& threads) {
  const std::size_t bytes = host::store_rows(call, threads);
  return call.crosses_link ? bytes : 0;
}

void resolve_rows(const ResolveRows& call, Parallel& /*threads*/) { host::resolve_rows(call); }

/// Enqueues kernel(call, threads) of each call on the queue's threads. The kernel returns the bytes
/// that cross the link, or nothing.
template <auto kernel, typename Arguments>
Result<Ticket> enqueue(Queue& queue, Phase phase, std::span<const Arguments> batch) {
  TERRACE_TRY(validate(batch));
  TERRACE_ASSIGN(auto calls, OpCalls<Arguments>::copy(batch));
  return queue.call(phase, [calls = std::move(calls), threads = &queue.threads()] {
    return host::for_each_call(calls.all(), *threads, kernel);
  });
}

constexpr Ops table{.store_rows = enqueue<store_rows>,
                    .pq_select = enqueue<host::pq_select>,
                    .exact_select = enqueue<host::exact_select>,
                    .channel_select = enqueue<host::channel_select>,
                    .map_queries = enqueue<host::map_queries>,
                    .convert_queries = enqueue<host::convert_queries>,
                    .page_select = enqueue<host::page_select>,
                    .cluster_select = enqueue<host::cluster_select>,
                    .refine_select = enqueue<host::refine_select>,
                    .sign_select = enqueue<host::sign_select>,
                    .resolve_rows = enqueue<resolve_rows>,
                    .fetch_rows = enqueue<host::fetch_rows>,
                    .cache_rows = enqueue<host::cache_rows>,
                    .decode_attention = enqueue<host::decode_attention>,
                    .tile_attention = enqueue<host::tile_attention>,
                    .tile_weights = enqueue<host::tile_weights>};

}  // namespace

const Ops& host_ops() noexcept { return table; }

}  // namespace terrace::offload
