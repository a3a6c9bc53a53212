// The rows that tokens are computed as which go through all layers together, and their chunks.
#pragma once

#include <algorithm>
#include <cstddef>

#include "terrace/core/bytes.hpp"
#include "terrace/engine/llama_model.hpp"

namespace terrace::engine {

/// The order in which libraries add depends on the size of a product. Therefore a piece of a prompt
/// is computed as whole tiles that begin at multiples of a tile's rows: a token has the same place
/// in a product of the same size, and so the same bits, in any piece. Rows before and after the
/// piece belong to no token. A token that decodes is a tile of one row.
struct PieceRows {
  RowRange tokens = {};
  std::size_t before = 0;  ///< rows without a token, before the first token
  std::size_t count = 0;   ///< rows of the tiles

  /// Returns the rows of these tokens in tiles of `tile` rows.
  static PieceRows of(RowRange tokens, std::size_t tile) noexcept {
    const std::size_t before = tokens.first_position % tile;
    return {tokens, before, align_up(before + tokens.count, tile)};
  }

  /// Rows that are computed at once.
  struct Chunk {
    std::size_t row = 0;          ///< the first one
    RowRange computed = {};       ///< positions of all rows
    std::size_t first_token = 0;  ///< of the piece's tokens
    std::size_t tokens = 0;

    /// Returns how many of the chunk's rows come before its first token.
    [[nodiscard]] std::size_t before(const PieceRows& piece) const noexcept {
      return piece.before + first_token - row;
    }
  };

  /// Returns the chunk of up to `rows_max` rows from `row` on. `row` and `rows_max` are multiples
  /// of a tile's rows.
  [[nodiscard]] Chunk chunk(std::size_t row, std::size_t rows_max) const noexcept {
    const std::size_t end = std::min(row + rows_max, count);
    const std::size_t first = std::max(row, before);
    const std::size_t last = std::min(end, before + tokens.count);
    return {row, {tokens.first_position + row - before, end - row}, first - before, last - first};
  }
};

}  // namespace terrace::engine
