// Causal attention of a run of query rows over the keys and values so far, for prefill.
//
// Softmax is taken tile by tile (online), so that memory stays linear in the context: no matrix
// of scores exists. Keys and values are read as they are stored, in the KV dtype's rounded values:
// prefill sees what decoding will see.
#pragma once

#include <cstddef>

#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/engine/float_array.hpp"

namespace terrace::engine {

/// One layer's query rows and what they may look at.
struct PrefillChunk {
  const float* query = nullptr;    ///< [rows, query_heads, head_dim], post-RoPE
  const void* kv = nullptr;        ///< [kv_heads, capacity, 2, head_dim] of the shape's dtype
  float* out = nullptr;            ///< [rows, query_heads, head_dim]
  std::size_t capacity = 0;        ///< rows of `kv` per head
  std::size_t first_position = 0;  ///< of query row 0; row r sees keys 0 .. first_position + r
  std::size_t rows = 0;
};

class PrefillAttention {
 public:
  /// Makes scratch for `lanes` threads, some 0.3 MB each at head_dim 64.
  ///
  /// Errors   invalid_argument: see KvShape::validate; out_of_memory
  static Result<PrefillAttention> create(const KvShape& shape, std::size_t lanes);

  /// Computes softmax(q k^T / sqrt(head_dim)) v for all rows and heads, in f32.
  ///
  /// Limits   first_position + rows <= capacity; allocates nothing
  /// Threads  uses min(lanes, parallel.concurrency()) threads; the bits depend on neither
  /// Cost     4 * query_heads * head_dim operations per (row, visible key)
  /// Source   Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et
  /// al.,
  ///          "FlashAttention", 2022 (ideas only)
  /// Tests    tests/engine/prefill_attention_test.cpp
  void run(const PrefillChunk& chunk, Parallel& parallel);

 private:
  KvShape shape_;
  std::size_t lanes_ = 0;
  std::size_t lane_floats_ = 0;
  FloatArray scratch_;  ///< [lanes, lane_floats]
};

}  // namespace terrace::engine
