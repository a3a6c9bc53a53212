// Arithmetic of retention over rows that lie anywhere in host memory: how much attention rows draw
// from some queries, and the row that several make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "terrace/core/shape.hpp"

namespace terrace::kernels::host {

/// Queries of consecutive tokens, of the group of one KV head, against that head's rows.
struct QueryWeights {
  KvShape shape;
  const float* queries = nullptr;  ///< [tokens] of [group, head_dim], post-RoPE
  std::size_t query_stride = 0;    ///< floats from one token to the next
  std::size_t tokens = 0;
  std::span<const std::byte* const> rows = {};
  std::span<const float> bias =
      {};                  ///< added to the logits of the first rows; other rows have no bias
  std::size_t seen = 0;    ///< rows that token 0 sees; each further token sees one more
  float* sums = nullptr;   ///< in and out [group, stride]
  std::size_t stride = 0;  ///< at least rows.size()
};

/// Adds to each row's sum the softmax weights that the tokens give it: with logits q.k /
/// sqrt(head_dim) + bias, over the rows that a token sees. A query whose logits are all -inf, or
/// include a NaN, adds nothing.
///
/// Cost     tokens * group * rows * head_dim products; allocates 4 bytes a token, query head and
///          row
/// Threads  reentrant
/// Tests    tests/kernels/retained_rows_test.cpp
void add_query_weights(const QueryWeights& op);

/// Rows that become one.
struct MergeRows {
  KvShape shape;
  std::span<const std::byte* const> rows = {};
  std::span<const std::uint32_t> degrees = {};  ///< tokens that each row stands for
  std::byte* merged = nullptr;                  ///< out: a row
};

/// Writes the mean of the rows' keys and values, each weighted by its degree and summed in f32 in
/// the order of the rows. A single row is copied unchanged.
///
/// Threads  reentrant
/// Tests    tests/kernels/retained_rows_test.cpp
void merge_rows(const MergeRows& op);

}  // namespace terrace::kernels::host
