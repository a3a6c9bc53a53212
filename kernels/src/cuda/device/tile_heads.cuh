// The query heads, of many tokens and one KV head, that a block takes: their queries, states and
// outputs, and the rows of a tile that they see.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "device/dot_rows.cuh"
#include "terrace/core/ops.hpp"

namespace terrace::kernels::cuda {

/// Query heads [first, first + used) of a KV head: number n is head n % group of token n / group.
struct TileHeads {
  const TileAttention& op;
  unsigned kv_head;
  unsigned first;
  unsigned used;

  [[nodiscard]] __device__ unsigned group() const {
    return static_cast<unsigned>(op.shape.group());
  }
  [[nodiscard]] __device__ unsigned token(unsigned h) const { return (first + h) / group(); }
  [[nodiscard]] __device__ std::size_t query_head(unsigned h) const {
    return kv_head * group() + (first + h) % group();
  }
  [[nodiscard]] __device__ const float* query(unsigned h) const {
    return op.query + token(h) * op.query_stride + query_head(h) * op.shape.head_dim;
  }
  [[nodiscard]] __device__ float* output(unsigned h) const {
    return op.output + token(h) * op.output_stride + query_head(h) * op.shape.head_dim;
  }
  [[nodiscard]] __device__ float* state(unsigned h) const {
    return op.state_of(token(h), query_head(h));
  }
  /// Rows that head h sees of the `room` rows from row `begin` on. Unused heads see no row.
  [[nodiscard]] __device__ unsigned rows_seen(unsigned h, unsigned begin, unsigned room) const {
    if (h >= used) return 0;
    const std::size_t rows = op.rows_seen(token(h));
    if (rows <= begin) return 0;
    return rows - begin < room ? static_cast<unsigned>(rows - begin) : room;
  }
};

/// Copies the queries of up to `heads` heads to shared memory, as share_queries does.
template <typename Elements, unsigned heads>
__device__ inline void share_queries_of(const TileHeads& block, unsigned dims, float* shared) {
  for (unsigned h = 0; h < heads; ++h) {
    const bool used = h < block.used;
    share_queries<Elements>(used ? block.query(h) : block.op.query, used ? 1 : 0, 1, dims, 1.0F,
                            shared + h * padded_dims<Elements>(dims));
  }
}

}  // namespace terrace::kernels::cuda
