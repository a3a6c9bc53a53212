#include "terrace/kernels/map_vectors.hpp"

#include <algorithm>

#include "terrace/core/assert.hpp"

namespace terrace::kernels::host {

void map_vector(const float* vector, const float* map, std::size_t dims, float* mapped) noexcept {
  TERRACE_DEBUG_ASSERT(dims == 0 || (vector != nullptr && map != nullptr && mapped != nullptr));
  // Row by row, so that the inner loop runs over neighbours and needs no order of its own.
  std::fill_n(mapped, dims, 0.0F);
  for (std::size_t i = 0; i < dims; ++i) {
    const float factor = vector[i];
    const float* const row = map + i * dims;
    for (std::size_t k = 0; k < dims; ++k) mapped[k] += factor * row[k];
  }
}

void map_queries(const MapQueries& op, Parallel& threads) {
  const std::size_t dims = op.shape.head_dim;
  threads.for_each(op.shape.kv_heads, [&](std::size_t head) {
    for (std::size_t q = head * op.shape.group(); q < (head + 1) * op.shape.group(); ++q) {
      map_vector(op.query + q * dims, op.maps + head * dims * dims, dims, op.mapped + q * dims);
    }
  });
}

}  // namespace terrace::kernels::host
