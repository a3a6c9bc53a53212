// Ops that make the queries that others take. See terrace/core/ops.hpp.
#pragma once

#include <cstddef>

#include "terrace/core/shape.hpp"

namespace terrace {

/// Takes queries into the space in which an index has its keys.
struct MapQueries {
  KvShape shape;
  const float* query = nullptr;  ///< [query_heads, head_dim]
  const float* maps = nullptr;   ///< [kv_heads, head_dim, head_dim]: row i is what element i adds
  float* mapped = nullptr;       ///< out [query_heads, head_dim]
};

/// Converts the numbers of queries to the f32 that ops compute with, or those of outputs, which
/// have the same shape, to what an engine takes. A narrowed number is rounded to the nearest,
/// ties to even; f16 has infinity for what it cannot hold, and NaN stays NaN. The bits of a number
/// are those of store_f32() of its load_f32() (terrace/core/dtype.hpp), for all pairs of types,
/// equal ones included. Numbers are aligned to their size. Calls of a batch differ in all but the
/// shape.
struct ConvertQueries {
  KvShape shape;                      ///< its dtype is not used
  const std::byte* source = nullptr;  ///< [tokens, query_heads, head_dim] of `from`
  Dtype from = Dtype::f32;
  std::size_t source_stride = 0;  ///< bytes from one token to the next; not used for one token
  std::byte* target = nullptr;    ///< out [tokens, query_heads, head_dim] of `to`
  Dtype to = Dtype::f32;
  std::size_t target_stride = 0;  ///< bytes from one token to the next; not used for one token
  std::size_t tokens = 0;
};

}  // namespace terrace
