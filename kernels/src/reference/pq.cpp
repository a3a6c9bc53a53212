#include <cmath>

#include "terrace/kernels/kmeans.hpp"
#include "terrace/kernels/reference.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::kernels::reference {
namespace {

/// Returns the nearest centroid of sub-space `subspace` to the key of `row`.
std::size_t nearest(const PqEncode& op, std::size_t head, std::size_t subspace,
                    const std::byte* row) {
  const std::size_t dims = op.shape.head_dim / op.pq.subspaces;
  const float* codebook = reinterpret_cast<const float*>(op.index.fixed) +
                          (head * op.pq.subspaces + subspace) * op.pq.centroids() * dims;
  std::size_t best = 0;
  double best_distance = 0;
  for (std::size_t c = 0; c < op.pq.centroids(); ++c) {
    double distance = 0;
    for (std::size_t i = 0; i < dims; ++i) {
      const double x = double{load_f32(row, op.shape.dtype, subspace * dims + i)};
      if (!(std::abs(x) < double{clustered_below})) return 0;
      distance += (x - double{codebook[c * dims + i]}) * (x - double{codebook[c * dims + i]});
    }
    if (c == 0 || distance < best_distance) {
      best = c;
      best_distance = distance;
    }
  }
  return best;
}

}  // namespace

void pq_encode(const PqEncode& op) {
  const std::size_t subspaces = op.pq.subspaces;
  for (std::size_t p = op.tokens.begin; p < op.tokens.end; ++p) {
    const std::size_t token = p - op.index.first_token;
    std::byte* chunk = op.index.chunks[token / op.index.chunk_tokens];
    for (std::size_t head = 0; head < op.shape.kv_heads; ++head) {
      const std::byte* row = row_address(op.shape, op.rows, head, p);
      for (std::size_t j = 0; j < subspaces; ++j) {
        chunk[(head * subspaces + j) * op.index.chunk_tokens + token % op.index.chunk_tokens] =
            static_cast<std::byte>(nearest(op, head, j, row));
      }
    }
  }
}

}  // namespace terrace::kernels::reference
