// The layout of a KV head's data in a chunk of a cluster index: see ClusterShape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::kernels {

/// The parts of one KV head in one chunk. Planes start at multiples of 64 bytes.
struct ClusterPlane {
  std::byte* centroids = nullptr;   ///< [slots] centroids or rows, centroid_bytes apart
  float* variance = nullptr;        ///< [slots]; null without estimates
  std::uint32_t* sizes = nullptr;   ///< [slots]
  std::uint32_t* firsts = nullptr;  ///< [slots]
  std::uint32_t* labels = nullptr;  ///< [chunk_tokens]
};

/// Returns the bytes from one centroid to the next: of a key, or with estimates of a whole row.
constexpr std::size_t centroid_bytes(const KvShape& shape, const ClusterShape& clusters) noexcept {
  return clusters.estimates ? shape.row_bytes() : shape.row_bytes() / 2;
}

/// The offsets of the parts of a plane, in bytes.
struct ClusterPlaneOffsets {
  std::size_t variance = 0;  ///< 0 without estimates
  std::size_t sizes = 0;
  std::size_t firsts = 0;
  std::size_t labels = 0;
  std::size_t plane_bytes = 0;

  static constexpr ClusterPlaneOffsets of(const KvShape& shape,
                                          const ClusterShape& clusters) noexcept {
    ClusterPlaneOffsets at;
    const std::size_t words = 4 * clusters.slots;
    at.sizes = align_up(clusters.slots * centroid_bytes(shape, clusters), 4);
    if (clusters.estimates) {
      at.variance = at.sizes;
      at.sizes = at.variance + words;
    }
    at.firsts = at.sizes + words;
    at.labels = at.firsts + words;
    at.plane_bytes = align_up(at.labels + 4 * clusters.chunk_tokens, 64);
    return at;
  }
};

constexpr std::size_t cluster_plane_bytes(const KvShape& shape,
                                          const ClusterShape& clusters) noexcept {
  return ClusterPlaneOffsets::of(shape, clusters).plane_bytes;
}

/// Returns the plane of KV head `head` in `chunk`, which is aligned to 64 bytes.
inline ClusterPlane cluster_plane(const KvShape& shape, const ClusterShape& clusters,
                                  std::byte* chunk, std::size_t head) noexcept {
  const ClusterPlaneOffsets at = ClusterPlaneOffsets::of(shape, clusters);
  std::byte* const begin = chunk + head * at.plane_bytes;
  ClusterPlane plane{.centroids = begin,
                     .sizes = reinterpret_cast<std::uint32_t*>(begin + at.sizes),
                     .firsts = reinterpret_cast<std::uint32_t*>(begin + at.firsts),
                     .labels = reinterpret_cast<std::uint32_t*>(begin + at.labels)};
  if (clusters.estimates) {
    plane.variance = reinterpret_cast<float*>(begin + at.variance);
  }
  return plane;
}

}  // namespace terrace::kernels
