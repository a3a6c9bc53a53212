// The offsets of the parts of an index's chunks, computed on the host: a device takes hundreds of
// cycles for each division of 64 bits.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::cuda {

/// A part that each KV head has one of, side by side: bytes of a chunk.
struct ChunkPart {
  std::size_t first;
  std::size_t step;  ///< from a KV head's to the next one's

  /// at(head) says where a KV head's part lies.
  template <typename At>
  static ChunkPart of(At at) {
    return {at(std::size_t{0}), at(std::size_t{1}) - at(std::size_t{0})};
  }
  [[nodiscard]] __device__ std::size_t of_head(std::size_t head) const {
    return first + head * step;
  }
};

/// The parts of GroupShape.
struct GroupParts {
  ChunkPart means;
  ChunkPart sizes;
  ChunkPart labels;
  unsigned pages_of_chunk;

  static GroupParts of(const KvShape& shape, const GroupShape& groups, std::size_t chunk_tokens) {
    using Head = std::size_t;
    return {ChunkPart::of([&](Head head) { return groups.means_at(shape, chunk_tokens, head); }),
            ChunkPart::of([&](Head head) { return groups.sizes_at(shape, chunk_tokens, head); }),
            ChunkPart::of([&](Head head) { return groups.labels_at(shape, chunk_tokens, head); }),
            static_cast<unsigned>(chunk_tokens / groups.page_tokens)};
  }
};

}  // namespace terrace::kernels::cuda
