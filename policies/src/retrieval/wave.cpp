// Wave: small clusters, the best of them attended exactly, all others estimated from their means.
//   build:  in segments of 2,048 tokens, each on its own, k-means of the keys less their mean, one
//           cluster for every 16 tokens, seeds at equal distances; clusters of more than 64 are
//           split. Per cluster: mean key, mean value, size, variance
//   extend: a batch of up to 256 generated tokens becomes clusters of its own; until then they
//           stay in the window. Old clusters stay as they are
//   select: per query head the softmax over all members, each standing at its centroid, and over
//           sinks and window exactly; summed over the group. Whole clusters by falling worth of a
//           member while they fit into the budget. Every other cluster becomes one entry of
//           attention: mean key, mean value, logit bias log(size), or more by its spread. A budget
//           of mass stops when, by these weights, every head has it
// Index: a label and 1/16 row a token. Deterministic for a seed on any number of threads.
// Source: RetroInfer (Chen et al., arXiv 2505.02922): zones, segments, estimate; ranking by the
// worth of a member, estimating everything and the budget of mass: own.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "cluster_index.hpp"
#include "rows.hpp"
#include "selection_args.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t wave_chunk_tokens = 256;
constexpr std::size_t split_above = 4;  // times the mean size

// A quarter more than the mean size asks for holds what splitting adds; two are for short batches.
std::size_t slots_for(std::size_t tokens_per_cluster) {
  return wave_chunk_tokens / tokens_per_cluster +
         divide_up(wave_chunk_tokens, 4 * tokens_per_cluster) + 2;
}

ClusterIndexOptions index_options(const WaveOptions& options) {
  return {.shape = {.chunk_tokens = wave_chunk_tokens,
                    .slots = slots_for(options.tokens_per_cluster),
                    .estimates = true},
          .tokens_per_cluster = options.tokens_per_cluster,
          .segment_tokens = options.segment_tokens,
          .members_max = split_above * options.tokens_per_cluster,
          .metric = options.metric,
          .centred = true,
          .strided_seeds = true};
}

class Wave final : public ClusterIndex {
 public:
  Wave(const WaveOptions& options, bool trims)
      : ClusterIndex(
            {.name = "wave",
             .indexed_together = options.segment_tokens,
             .clusters = true,
             .clustering = fmt::format("{} tokens a cluster in segments of {}",
                                       options.tokens_per_cluster, options.segment_tokens),
             .batch_tokens_min = std::min(wave_chunk_tokens, 4 * options.tokens_per_cluster),
             .batch_tokens_max = wave_chunk_tokens,
             .gives_pseudo_entries = options.estimated_share > 0,
             .stops_at_mass = true},
            index_options(options)),
        options_(options),
        trims_(trims) {}

  [[nodiscard]] std::size_t pseudo_capacity(std::size_t tokens) const noexcept override {
    return traits().gives_pseudo_entries ? cluster_room(clusters(), tokens) : 0;
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.cluster_select, batch, queue, [&](const SelectRequest& request) {
      return ClusterSelect{.common = selection_of(request),
                           .clusters = clusters(),
                           .index = request.index,
                           .ranking = options_.ranking,
                           .trims = trims_,
                           .estimated = estimated(request.index.token_count),
                           .pseudo = request.out.pseudo,
                           .resident = request.resident,
                           .sinks = request.sinks,
                           .window = request.window,
                           .mass_wanted = request.mass,
                           .spreads = options_.spreads};
    });
  }

 private:
  /// Returns how many clusters may be estimated.
  [[nodiscard]] std::size_t estimated(std::size_t tokens) const noexcept {
    if (options_.estimated_share == 1) return cluster_room(clusters(), tokens);
    return static_cast<std::size_t>(
        std::lround(options_.estimated_share * static_cast<double>(tokens) /
                    static_cast<double>(options_.tokens_per_cluster)));
  }

  WaveOptions options_;
  bool trims_;  ///< proposed rows are as many as asked for
};

}  // namespace

MadeRetrievalPolicy make_wave(const RetrievalOptions& options) {
  WaveOptions wave = options.wave;
  // A second stage takes single rows of clusters: what it leaves has no mean to stand for it.
  const bool proposes = options.refine.bits > 0;
  if (proposes) wave.estimated_share = 0;
  if (wave.tokens_per_cluster == 0 || wave.tokens_per_cluster > wave_chunk_tokens) {
    return fail(Errc::invalid_argument, "wave.tokens_per_cluster {}: use 1 to {}",
                wave.tokens_per_cluster, wave_chunk_tokens);
  }
  if (wave.segment_tokens == 0 || wave.segment_tokens % wave_chunk_tokens != 0) {
    return fail(Errc::invalid_argument, "wave.segment_tokens {}: use a multiple of {}",
                wave.segment_tokens, wave_chunk_tokens);
  }
  if (!(wave.estimated_share >= 0 && wave.estimated_share <= 1)) {
    return fail(Errc::invalid_argument, "wave.estimated_share is {}; use 0 to 1",
                wave.estimated_share);
  }
  return std::make_unique<Wave>(wave, proposes);
}

}  // namespace terrace::policies
