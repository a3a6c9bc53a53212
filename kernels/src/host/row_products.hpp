// Logits of rows that lie anywhere: the query heads of a group against keys by address.
#pragma once

#include <cstddef>

#include "terrace/core/shape.hpp"

namespace terrace::kernels::host {

/// Keys of one KV head, and where their logits go.
struct RowProducts {
  Dtype dtype = Dtype::f16;
  std::size_t dims = 0;            ///< at most 2048
  float scale = 1;                 ///< what products are multiplied by
  const float* queries = nullptr;  ///< [queries, dims]
  std::size_t query_count = 0;
  const std::byte* const* keys = nullptr;  ///< [key_count], each dims elements
  std::size_t key_count = 0;
  float* logits = nullptr;  ///< out [query_count, stride]
  std::size_t stride = 0;
  /// Memory is asked for keys while others are multiplied: they are in no near cache.
  bool ask_ahead = false;
};

/// Writes scale * q.k. A product does not depend on the rows beside it.
void row_products(const RowProducts& rows) noexcept;

}  // namespace terrace::kernels::host
