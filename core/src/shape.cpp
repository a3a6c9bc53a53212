#include "terrace/core/shape.hpp"

#include <cmath>

#include "terrace/core/bytes.hpp"

namespace terrace {

Result<std::size_t> KvShape::block_bytes(std::size_t block_tokens) const noexcept {
  TERRACE_ASSIGN(const std::size_t rows, checked_multiply(kv_heads, block_tokens));
  return checked_multiply(rows, row_bytes());
}

Status KvShape::validate() const {
  if (layers == 0 || query_heads == 0 || kv_heads == 0 || head_dim == 0) {
    return fail(Errc::invalid_argument,
                "KV shape has a zero: {} layers, {} query heads, {} KV heads, head_dim {}", layers,
                query_heads, kv_heads, head_dim);
  }
  if (query_heads % kv_heads != 0) {
    return fail(Errc::invalid_argument, "{} query heads are no multiple of {} KV heads",
                query_heads, kv_heads);
  }
  if (head_dim % 2 != 0 || head_dim > head_dim_max) {
    return fail(Errc::invalid_argument, "head_dim {} is not supported; it must be even, up to {}",
                head_dim, head_dim_max);
  }
  if (!std::isfinite(softmax_scale) || softmax_scale < 0) {
    return fail(Errc::invalid_argument,
                "softmax_scale {}: give a finite number above 0, or 0 for 1 / sqrt(head_dim)",
                softmax_scale);
  }
  return {};
}

}  // namespace terrace
