// The host's kernels, on two threads where they take some.
#include "kernels/kernel_run.hpp"
#include "kernels/part_threads.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/calls.hpp"
#include "terrace/kernels/cluster_select.hpp"
#include "terrace/kernels/convert_queries.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/map_vectors.hpp"
#include "terrace/kernels/page_select.hpp"
#include "terrace/kernels/refine.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/select.hpp"
#include "terrace/kernels/signs.hpp"

namespace terrace::testing {
namespace {

namespace host = kernels::host;

PartThreads threads(2);

}  // namespace

std::size_t odd_offset(Dtype) { return 1; }
bool takes_shape(std::size_t number) { return takes_shape_with(number, 5'000); }

std::size_t run(std::span<const StoreRows> batch) {
  return host::for_each_call(batch, threads, [](const StoreRows& op, Parallel& of_call) {
    const std::size_t bytes = host::store_rows(op, of_call);
    return op.crosses_link ? bytes : 0;
  });
}
std::size_t run(std::span<const FetchRows> batch) {
  return host::for_each_call(batch, threads, host::fetch_rows);
}
std::size_t run(std::span<const CacheRows> batch) {
  return host::for_each_call(batch, threads, host::cache_rows);
}
void run(std::span<const PqSelect> batch) { host::for_each_call(batch, threads, host::pq_select); }
void run(std::span<const ExactSelect> batch) {
  host::for_each_call(batch, threads, host::exact_select);
}
void run(std::span<const ChannelSelect> batch) {
  host::for_each_call(batch, threads, host::channel_select);
}
void run(std::span<const MapQueries> batch) {
  host::for_each_call(batch, threads, host::map_queries);
}
void run(std::span<const ConvertQueries> batch) {
  host::for_each_call(batch, threads, host::convert_queries);
}
void run(std::span<const PageSelect> batch) {
  host::for_each_call(batch, threads, host::page_select);
}
void run(std::span<const ClusterSelect> batch) {
  host::for_each_call(batch, threads, host::cluster_select);
}
void run(std::span<const RefineSelect> batch) {
  host::for_each_call(batch, threads, host::refine_select);
}
void run(std::span<const SignSelect> batch) {
  host::for_each_call(batch, threads, host::sign_select);
}
void run(std::span<const DecodeAttention> batch) {
  host::for_each_call(batch, threads, host::decode_attention);
}
void run(std::span<const TileAttention> batch) {
  host::for_each_call(batch, threads, host::tile_attention);
}
void run(std::span<const TileWeights> batch) {
  host::for_each_call(batch, threads, host::tile_weights);
}
void run(std::span<const ResolveRows> batch) {
  host::for_each_call(batch, threads,
                      [](const ResolveRows& op, Parallel&) { host::resolve_rows(op); });
}

}  // namespace terrace::testing
