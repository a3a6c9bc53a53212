// ClusterKV: whole semantic clusters are fetched, the last one cut to the budget.
//   build:  for each KV head, k-means of all keys after the sinks by cosine; centroids are plain
//           means; one cluster for every 80 tokens
//   extend: each batch of up to 320 generated tokens becomes clusters of its own, 4 for a whole
//           one; until then its tokens stay in the window. Old clusters stay as they are
//   select: clusters by falling q.centroid (not cosine) until the budget is full; of the last one
//           the lowest positions stay. Lists are per KV head: for each query head the softmax over
//           all candidates, each standing at its centroid, summed over the group; or per query
//           head, as published
// Index: a label and 1/80 centroid a token. Deterministic for a seed on any number of threads.
// Source: ClusterKV (Liu et al., arXiv 2412.03213), idea and parameters; lists per KV head: own.
#include <fmt/core.h>

#include <algorithm>

#include "cluster_index.hpp"
#include "rows.hpp"
#include "selection_args.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t clusterkv_chunk_tokens = 320;
// Places beyond the rule's are for extensions shorter than a chunk: at most five of 64 tokens end
// in it, and one cluster of the prompt.
constexpr std::size_t spare_slots = 2;
constexpr std::size_t shortest_batch = 64;

ClusterIndexOptions index_options(const ClusterKvOptions& options) {
  return {.shape = {.chunk_tokens = clusterkv_chunk_tokens,
                    .slots = std::max<std::size_t>(
                                 1, clusterkv_chunk_tokens / options.tokens_per_cluster) +
                             spare_slots},
          .tokens_per_cluster = options.tokens_per_cluster,
          .metric = kernels::Metric::cosine};
}

class ClusterKv final : public ClusterIndex {
 public:
  explicit ClusterKv(const ClusterKvOptions& options)
      : ClusterIndex({.name = "clusterkv",
                      .indexed_together = whole_build,
                      .lists = options.lists,
                      .clusters = true,
                      .clustering = fmt::format("{} tokens a cluster", options.tokens_per_cluster),
                      .batch_tokens_min = shortest_batch,
                      .batch_tokens_max = clusterkv_chunk_tokens},
                     index_options(options)) {}

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.cluster_select, batch, queue, [&](const SelectRequest& request) {
      return ClusterSelect{.common = selection_of(request),
                           .clusters = clusters(),
                           .index = request.index,
                           .scope = traits().lists};
    });
  }
};

}  // namespace

MadeRetrievalPolicy make_clusterkv(const RetrievalOptions& options) {
  const std::size_t tokens = options.clusterkv.tokens_per_cluster;
  if (tokens == 0 || tokens > clusterkv_chunk_tokens) {
    return fail(Errc::invalid_argument, "clusterkv.tokens_per_cluster {}: use 1 to {}", tokens,
                clusterkv_chunk_tokens);
  }
  return std::make_unique<ClusterKv>(options.clusterkv);
}

}  // namespace terrace::policies
