// The host's kernels, on two threads where they take some.
#include "kernels/kernel_run.hpp"
#include "kernels/part_threads.hpp"
#include "terrace/kernels/attention.hpp"
#include "terrace/kernels/cluster_select.hpp"
#include "terrace/kernels/map_vectors.hpp"
#include "terrace/kernels/page_select.hpp"
#include "terrace/kernels/rows.hpp"
#include "terrace/kernels/select.hpp"

namespace terrace::testing {
namespace {

PartThreads threads(2);

}  // namespace

std::size_t odd_offset(Dtype) { return 1; }
bool takes_shape(std::size_t /*number*/) { return true; }

std::size_t run(const StoreRows& op) {
  const std::size_t bytes = kernels::host::store_rows(op, threads);
  return op.crosses_link ? bytes : 0;
}
std::size_t run(const FetchRows& op) { return kernels::host::fetch_rows(op, threads); }
std::size_t run(const CacheRows& op) { return kernels::host::cache_rows(op, threads); }
void run(const PqSelect& op) { kernels::host::pq_select(op, threads); }
void run(const ExactSelect& op) { kernels::host::exact_select(op, threads); }
void run(const MapQueries& op) { kernels::host::map_queries(op, threads); }
void run(const PageSelect& op) { kernels::host::page_select(op, threads); }
void run(const ClusterSelect& op) { kernels::host::cluster_select(op, threads); }
void run(const ResolveRows& op) { kernels::host::resolve_rows(op); }
void run(const DecodeAttention& op) { kernels::host::decode_attention(op, threads); }

}  // namespace terrace::testing
