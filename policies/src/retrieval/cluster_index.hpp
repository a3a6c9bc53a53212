// The common part of the policies that select whole clusters of keys: clusterkv and wave.
//
// Tokens are clustered in segments, each on its own. Segments are whole chunks, so that the
// clusters of a segment lie in its chunks; an extension, cut where segments begin, puts its
// clusters into places of the chunks it touches that no earlier token uses. Earlier clusters stay
// unchanged, except if many short extensions have taken all places of a chunk: then tokens join its
// last cluster, which is computed again.
#pragma once

#include <cstddef>

#include "terrace/core/retrieval.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace::policies {

struct ClusterIndexOptions {
  ClusterShape shape;
  std::size_t tokens_per_cluster = 80;
  std::size_t segment_tokens = 0;  ///< a multiple of chunk_tokens; 0 = all at once
  std::size_t members_max = 0;  ///< larger clusters are split, as far as there is room; 0 = never
  kernels::Metric metric = kernels::Metric::cosine;
  bool centred = false;        ///< keys are compared after subtracting their mean
  bool strided_seeds = false;  ///< initial centroids at equal distances; else drawn
};

/// A policy fills in how clusters are selected.
class ClusterIndex : public RetrievalPolicy {
 public:
  [[nodiscard]] const RetrievalTraits& traits() const noexcept final { return traits_; }
  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const final;
  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept final;
  [[nodiscard]] const std::uint32_t* labels(const KvShape& shape, std::byte* chunk,
                                            std::size_t head) const noexcept final;

  /// A part is a segment of a head.
  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept final;
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t part) const final;

 protected:
  [[nodiscard]] Result<bool> do_cut(const BuildRequest& request) const final;

  ClusterIndex(const RetrievalTraits& traits, const ClusterIndexOptions& options)
      : traits_(traits), options_(options) {}

  [[nodiscard]] const ClusterShape& clusters() const noexcept { return options_.shape; }

 private:
  /// The segments, counted from the index's begin, that a request's tokens lie in.
  [[nodiscard]] TokenRange segments_of(const BuildRequest& request) const noexcept;

  RetrievalTraits traits_;
  ClusterIndexOptions options_;
};

}  // namespace terrace::policies
