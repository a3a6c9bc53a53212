// The layout of clusters and their data: terrace/kernels/cluster_plane.hpp, for device code.
#pragma once

#include <cuda_runtime.h>

#include "terrace/kernels/cluster_plane.hpp"

namespace terrace::kernels::cuda {

/// The clusters of one KV head, by number.
class ClusterPlaces {
 public:
  __device__ ClusterPlaces(const ClusterSelect& op, unsigned head)
      : chunks_(op.index.chunks),
        at_(ClusterPlaneOffsets::of(op.common.shape, op.clusters)),
        centroid_bytes_(centroid_bytes(op.common.shape, op.clusters)),
        first_(head * at_.plane_bytes),
        slots_(static_cast<unsigned>(op.clusters.slots)),
        chunk_tokens_(static_cast<unsigned>(op.clusters.chunk_tokens)) {}

  [[nodiscard]] __device__ const std::byte* centroid(std::uint32_t cluster) const {
    return plane(cluster / slots_) + cluster % slots_ * centroid_bytes_;
  }
  [[nodiscard]] __device__ float variance(std::uint32_t cluster) const {
    return word<float>(cluster, at_.variance);
  }
  [[nodiscard]] __device__ std::uint32_t size(std::uint32_t cluster) const {
    return word<std::uint32_t>(cluster, at_.sizes);
  }
  /// The cluster of a token, counted from the index's first.
  [[nodiscard]] __device__ std::uint32_t label(std::size_t token) const {
    const auto chunk = static_cast<unsigned>(token / chunk_tokens_);
    const auto* const labels = reinterpret_cast<const std::uint32_t*>(plane(chunk) + at_.labels);
    return labels[token % chunk_tokens_];
  }

 private:
  [[nodiscard]] __device__ const std::byte* plane(unsigned chunk) const {
    return chunks_[chunk] + first_;
  }
  template <typename Word>
  [[nodiscard]] __device__ Word word(std::uint32_t cluster, std::size_t offset) const {
    return reinterpret_cast<const Word*>(plane(cluster / slots_) + offset)[cluster % slots_];
  }

  std::byte* const* chunks_;
  ClusterPlaneOffsets at_;
  std::size_t centroid_bytes_;
  std::size_t first_;
  unsigned slots_;
  unsigned chunk_tokens_;
};

}  // namespace terrace::kernels::cuda
