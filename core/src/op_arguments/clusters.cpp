#include "checks.hpp"

namespace terrace {

using namespace op_arguments;

namespace {

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

}  // namespace

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

}  // namespace terrace
