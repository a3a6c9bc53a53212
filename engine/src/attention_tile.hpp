// One tile of prefill attention: the query rows that share a KV head, over all keys they see.
#pragma once

#include <cstddef>

#include "terrace/core/dtype.hpp"

namespace terrace::engine {

/// Keys taken at once. K^T and V of a tile fit in the first-level cache at head_dim 64; a multiple
/// of every vector width, so that rows of scores have no remainder.
inline constexpr std::size_t key_tile = 64;

/// Row r = (position r / group, query head r % group of the KV head).
struct AttentionTile {
  /// Row r's vector at r / group * position_stride + r % group * head_dim.
  const float* query;
  float* out;           ///< likewise
  const std::byte* kv;  ///< [positions, 2, head_dim] of one KV head
  Dtype dtype;
  std::size_t head_dim;
  std::size_t group;
  std::size_t position_stride;  ///< floats between one position's queries and the next's
  std::size_t first_position;   ///< of row 0
  std::size_t positions;
};

/// Where the parts of one tile's scratch lie, each on a 64-byte boundary but the last two. Vectors
/// are padded to `width` floats; the padding of `values` is zero and stays so, because it lies at
/// the same place whatever the number of rows.
struct AttentionScratch {
  std::size_t width;
  float* values;       ///< [key_tile, width]
  float* row;          ///< [width]: a key before it is transposed
  float* keys;         ///< [head_dim, key_tile]: K transposed
  float* query;        ///< [rows, width], scaled by 1 / sqrt(head_dim)
  float* sum;          ///< [rows, width]: output before its division
  float* scores;       ///< [rows, key_tile]
  float* largest;      ///< [rows]: the largest score so far
  float* denominator;  ///< [rows]: sum of exp(score - largest)

  static std::size_t floats(std::size_t rows, std::size_t head_dim) noexcept;
  static AttentionScratch carve(float* memory, std::size_t rows, std::size_t head_dim) noexcept;
};

/// Fills `tile.out`. `memory` is AttentionScratch::floats() zeros at first, 64-byte aligned, and
/// used for tiles of one head_dim only.
void attend_tile(const AttentionTile& tile, float* memory) noexcept;

}  // namespace terrace::engine
