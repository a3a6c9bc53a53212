#include "terrace/offload/host_ops.hpp"

#include "terrace/core/op_arguments.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/cluster_select.hpp"
#include "terrace/kernels/map_vectors.hpp"
#include "terrace/kernels/page_select.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace::offload {
namespace {

namespace host = kernels::host;

/// Enqueues a kernel that moves nothing across the link, on the queue's threads.
template <auto kernel, typename Arguments>
Result<Ticket> compute(Queue& queue, Phase phase, const Arguments& arguments) {
  TERRACE_TRY(validate(arguments));
  return queue.call(phase, [arguments, threads = &queue.threads()] {
    kernel(arguments, *threads);
    return std::size_t{0};
  });
}

Result<Ticket> store_rows(Queue& queue, Phase phase, const StoreRows& arguments) {
  TERRACE_TRY(validate(arguments));
  return queue.call(phase, [arguments, threads = &queue.threads()] {
    const std::size_t bytes = host::store_rows(arguments, *threads);
    return arguments.crosses_link ? bytes : 0;
  });
}

/// Enqueues a kernel of one thread.
template <auto kernel, typename Arguments>
Result<Ticket> compute_alone(Queue& queue, Phase phase, const Arguments& arguments) {
  TERRACE_TRY(validate(arguments));
  return queue.call(phase, [arguments] {
    kernel(arguments);
    return std::size_t{0};
  });
}

Result<Ticket> fetch_rows(Queue& queue, Phase phase, const FetchRows& arguments) {
  TERRACE_TRY(validate(arguments));
  return queue.call(phase, [arguments, threads = &queue.threads()] {
    return host::fetch_rows(arguments, *threads);
  });
}

Result<Ticket> cache_rows(Queue& queue, Phase phase, const CacheRows& arguments) {
  TERRACE_TRY(validate(arguments));
  return queue.call(phase, [arguments, threads = &queue.threads()] {
    return host::cache_rows(arguments, *threads);
  });
}

constexpr Ops table{.store_rows = store_rows,
                    .pq_select = compute<host::pq_select>,
                    .exact_select = compute<host::exact_select>,
                    .map_queries = compute<host::map_queries>,
                    .page_select = compute<host::page_select>,
                    .cluster_select = compute<host::cluster_select>,
                    .resolve_rows = compute_alone<host::resolve_rows, ResolveRows>,
                    .fetch_rows = fetch_rows,
                    .cache_rows = cache_rows,
                    .decode_attention = compute<host::decode_attention>};

}  // namespace

const Ops& host_ops() noexcept { return table; }

}  // namespace terrace::offload
