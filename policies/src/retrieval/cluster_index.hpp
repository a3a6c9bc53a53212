// Building and extending an index of clusters: what clusterkv and wave share.
//
// Tokens are clustered in segments, each on its own. Segments are whole chunks, so that the
// clusters of a segment lie in its chunks; a later extension puts its clusters into places of the
// chunks it touches that no earlier token uses. Nothing that was made before changes.
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

class ClusterIndex {
 public:
  explicit ClusterIndex(const ClusterIndexOptions& options) : options_(options) {}

  [[nodiscard]] const ClusterShape& shape() const noexcept { return options_.shape; }
  [[nodiscard]] IndexLayout layout(const KvShape& shape) const noexcept;

  /// A part is a segment of a head.
  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept;
  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request, std::size_t part) const;

  /// Clusters tokens that follow those indexed, on the caller's thread.
  /// request.index.token_count tells how many there were before.
  [[nodiscard]] Status extend(const BuildRequest& request) const;

 private:
  [[nodiscard]] std::size_t segment_tokens(const BuildRequest& request) const noexcept {
    return options_.segment_tokens == 0 ? request.tokens.size() : options_.segment_tokens;
  }
  [[nodiscard]] Result<BuildReport> cluster_head(const BuildRequest& request, TokenRange tokens,
                                                 std::size_t head, bool fresh) const;

  ClusterIndexOptions options_;
};

}  // namespace terrace::policies
