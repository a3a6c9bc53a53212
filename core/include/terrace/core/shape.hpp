// The shape of a model's KV cache, and the one layout of a row that every tier shares.
//
// A *row* is one token of one (layer, KV head): its key and its value side by side,
// [2, head_dim] elements of `dtype`, keys first. A *block* is `block_tokens` consecutive
// positions of one layer, [kv_heads, block_tokens] rows. Keys are post-RoPE.
#pragma once

#include <cmath>
#include <cstddef>

#include "terrace/core/dtype.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

struct KvShape {
  static constexpr std::size_t head_dim_max = 1024;

  std::size_t layers = 0;
  std::size_t query_heads = 0;
  std::size_t kv_heads = 0;
  std::size_t head_dim = 0;  ///< even, up to head_dim_max
  Dtype dtype = Dtype::f16;
  float softmax_scale = 0;  ///< what a query times a key is multiplied by; 0 = 1 / sqrt(head_dim)

  /// Query heads that share one KV head.
  [[nodiscard]] constexpr std::size_t group() const noexcept { return query_heads / kv_heads; }
  [[nodiscard]] constexpr std::size_t row_bytes() const noexcept {
    return 2 * head_dim * size_bytes(dtype);
  }
  /// Bytes of one token of one layer, all KV heads.
  [[nodiscard]] constexpr std::size_t token_bytes() const noexcept {
    return kv_heads * row_bytes();
  }

  /// Returns what a query times a key is multiplied by to be a logit.
  [[nodiscard]] float logit_scale() const noexcept {
    return softmax_scale != 0 ? softmax_scale : 1.0F / std::sqrt(static_cast<float>(head_dim));
  }

  /// Bytes of a block. Errors: out_of_memory where they do not fit in 64 bits.
  [[nodiscard]] Result<std::size_t> block_bytes(std::size_t block_tokens) const noexcept;

  /// Errors: invalid_argument for a zero, query_heads no multiple of kv_heads, head_dim odd or
  /// above head_dim_max, or a softmax_scale that is negative or not finite.
  [[nodiscard]] Status validate() const;

  bool operator==(const KvShape&) const = default;
};

}  // namespace terrace
