#include "cuda_ops.hpp"

#include <utility>

#include "op_calls.hpp"
#include "terrace/core/op_arguments.hpp"
#include "terrace/kernels/cuda/ops.hpp"
#include "terrace/offload/cuda/enqueue.hpp"

namespace terrace::offload {
namespace {

namespace cuda = kernels::cuda;

template <auto op, typename Arguments>
Result<Ticket> enqueue(Queue& queue, Phase phase, std::span<const Arguments> batch) {
  TERRACE_TRY(validate(batch));
  TERRACE_ASSIGN(auto calls, OpCalls<Arguments>::copy(batch));
  return enqueue_kernels(queue, phase, [calls = std::move(calls)](const cuda::Launch& launch) {
    return op(calls.all(), launch);
  });
}

constexpr Ops table{.store_rows = enqueue<cuda::store_rows>,
                    .pq_select = enqueue<cuda::pq_select>,
                    .exact_select = enqueue<cuda::exact_select>,
                    .channel_select = enqueue<cuda::channel_select>,
                    .map_queries = enqueue<cuda::map_queries>,
                    .convert_queries = enqueue<cuda::convert_queries>,
                    .page_select = enqueue<cuda::page_select>,
                    .cluster_select = enqueue<cuda::cluster_select>,
                    .refine_select = enqueue<cuda::refine_select>,
                    .sign_select = enqueue<cuda::sign_select>,
                    .resolve_rows = enqueue<cuda::resolve_rows>,
                    .fetch_rows = enqueue<cuda::fetch_rows>,
                    .cache_rows = enqueue<cuda::cache_rows>,
                    .decode_attention = enqueue<cuda::decode_attention>,
                    .tile_attention = enqueue<cuda::tile_attention>,
                    .tile_weights = enqueue<cuda::tile_weights>};

}  // namespace

const Ops& cuda_ops() noexcept { return table; }

}  // namespace terrace::offload
