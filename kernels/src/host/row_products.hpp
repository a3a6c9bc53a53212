// Logits of rows that lie anywhere: the query heads of a group against keys by address.
#pragma once

#include <cstddef>

#include "terrace/core/shape.hpp"

namespace terrace::kernels::host {

/// Keys of one KV head, and where their logits go.
struct RowProducts {
  const float* queries = nullptr;  ///< [queries, head_dim]
  std::size_t query_count = 0;
  const std::byte* const* keys = nullptr;  ///< [key_count], each head_dim elements of the KV dtype
  std::size_t key_count = 0;
  float* logits = nullptr;  ///< out [query_count, stride]
  std::size_t stride = 0;
};

/// Writes q.k / sqrt(head_dim). A product does not depend on which rows stand beside it.
void row_products(const KvShape& shape, const RowProducts& rows) noexcept;

}  // namespace terrace::kernels::host
