// Where a chunk of a cluster index keeps what belongs to one KV head: see ClusterShape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::kernels {

/// The parts of one KV head in one chunk. Planes start at multiples of 64 bytes.
struct ClusterPlane {
  std::byte* centroids = nullptr;   ///< [slots] centroids or rows, centroid_bytes apart
  float* radius = nullptr;          ///< [slots]; null without estimates
  float* rounding = nullptr;        ///< [slots]; null without estimates
  float* variance = nullptr;        ///< [slots]; null without estimates
  std::uint32_t* sizes = nullptr;   ///< [slots]
  std::uint32_t* labels = nullptr;  ///< [chunk_tokens]
};

/// Returns the bytes from one centroid to the next: of a key, or with estimates of a whole row.
constexpr std::size_t centroid_bytes(const KvShape& shape, const ClusterShape& clusters) noexcept {
  return clusters.estimates ? shape.row_bytes() : shape.row_bytes() / 2;
}

constexpr std::size_t cluster_plane_bytes(const KvShape& shape,
                                          const ClusterShape& clusters) noexcept {
  const std::size_t words = (clusters.estimates ? 4 : 1) * clusters.slots + clusters.chunk_tokens;
  return align_up(align_up(clusters.slots * centroid_bytes(shape, clusters), 4) + 4 * words, 64);
}

/// Returns the plane of KV head `head` in `chunk`, which is aligned to 64 bytes.
inline ClusterPlane cluster_plane(const KvShape& shape, const ClusterShape& clusters,
                                  std::byte* chunk, std::size_t head) noexcept {
  ClusterPlane plane;
  plane.centroids = chunk + head * cluster_plane_bytes(shape, clusters);
  auto* words = reinterpret_cast<std::uint32_t*>(
      plane.centroids + align_up(clusters.slots * centroid_bytes(shape, clusters), 4));
  if (clusters.estimates) {
    plane.radius = reinterpret_cast<float*>(words);
    plane.rounding = plane.radius + clusters.slots;
    plane.variance = plane.rounding + clusters.slots;
    words += 3 * clusters.slots;
  }
  plane.sizes = words;
  plane.labels = words + clusters.slots;
  return plane;
}

}  // namespace terrace::kernels
