// The work of tile_attention for one thread: some query heads of one KV head, and memory for what
// is computed of them.
#pragma once

#include <cstddef>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Query heads [begin, begin + count) of a KV head, of all tokens: number n is head n % group of
/// token n / group. Members take the place of a head in the part.
struct TilePart {
  const TileAttention& op;
  std::size_t kv_head;
  std::size_t begin;
  std::size_t count;

  [[nodiscard]] std::size_t token(std::size_t h) const noexcept {
    return (begin + h) / op.shape.group();
  }
  [[nodiscard]] const float* query(std::size_t h) const noexcept {
    return op.query + token(h) * op.query_stride + query_head(h) * op.shape.head_dim;
  }
  [[nodiscard]] float* state(std::size_t h) const noexcept {
    return op.state_of(token(h), query_head(h));
  }
  [[nodiscard]] float* output(std::size_t h) const noexcept {
    return op.output + token(h) * op.output_stride + query_head(h) * op.shape.head_dim;
  }
  /// Rows that the last head sees, and with it every other one of the part.
  [[nodiscard]] std::size_t rows_seen() const noexcept { return op.rows_seen(token(count - 1)); }

 private:
  [[nodiscard]] std::size_t query_head(std::size_t h) const noexcept {
    return kv_head * op.shape.group() + (begin + h) % op.shape.group();
  }
};

/// Rows of a tile that a part's heads pass over together. Their number divides tile_split.
constexpr std::size_t piece_rows = 64;
constexpr std::size_t part_heads_max = 128;
/// Floats of the queries of a part: those of the most heads where a head has 128 dimensions, the
/// second cache being where they stay.
constexpr std::size_t part_query_floats = part_heads_max * 128;
constexpr std::size_t lanes_max = 16;
/// Heads of a part that takes keys and values where they lie: laying them out costs as much as
/// reading them twice.
constexpr std::size_t few_heads_max = 8;

/// A value for each head of a part, with room for as many more as are computed together.
template <typename Number>
using OfHeads = Number[part_heads_max + 4];

struct PartMemory {
  alignas(64) float queries[part_query_floats];  // to the base 2, in blocks of heads
  // [heads, piece_rows]: logits, then weights
  alignas(64) float weights[part_heads_max * piece_rows];
  alignas(64) float keys[KvShape::head_dim_max * lanes_max];  // laid out
  alignas(64) float values[piece_rows * 2 * lanes_max];       // up to two vectors of each row
  OfHeads<float> maxima;                                      // of logits
  OfHeads<float> bases;    // what is taken from logits: the maxima, but for -inf
  OfHeads<float> factors;  // by which what was summed before is multiplied
  OfHeads<float> sums;     // of weights
  OfHeads<float*> states;
  OfHeads<std::size_t> seen_in_tile;
  OfHeads<std::size_t> seen;  // of the piece

  /// Sums of values of head h where few heads take keys and values where they lie: in place of keys
  /// that are laid out, [few_heads_max, padded].
  [[nodiscard]] float* sums_in_place(std::size_t h, std::size_t padded) noexcept {
    return keys + h * padded;
  }
};

}  // namespace terrace::kernels::host
