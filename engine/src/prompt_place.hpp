// Where tokens of a prompt lie among the rows that are computed together.
#pragma once

#include <cstddef>

#include "terrace/core/bytes.hpp"
#include "terrace/engine/llama_model.hpp"

namespace terrace::engine {

/// Libraries choose by the size of a product in which order they add. So a piece of a prompt is
/// computed as whole tiles that begin at multiples of a tile's rows: a token has the same place in
/// a product of the same size, and so the same bits, whatever piece it comes in. Rows before and
/// behind the piece are nobody's.
struct PromptPlace {
  std::size_t position = 0;  ///< of the first token
  std::size_t before = 0;    ///< nobody's rows before it
  std::size_t rows = 0;      ///< of the tiles; 0 = a whole prompt, whose rows come as asked for

  /// Returns the place of these tokens in tiles of `tile` rows.
  static PromptPlace of_piece(RowRange tokens, std::size_t tile) noexcept {
    const std::size_t before = tokens.first_position % tile;
    return {tokens.first_position, before, align_up(before + tokens.count, tile)};
  }
  /// Returns the most rows that a piece of `tokens` tokens takes.
  static constexpr std::size_t rows_max(std::size_t tokens, std::size_t tile) noexcept {
    return align_up(tokens + tile - 1, tile);
  }

  /// Returns the positions of the rows that are computed where `tokens` are asked for.
  [[nodiscard]] RowRange computed(RowRange tokens) const noexcept {
    return rows == 0 ? tokens : RowRange{position - before, rows};
  }
  /// Returns the row of a token among all, and its place among the tokens.
  [[nodiscard]] std::size_t row_of(std::size_t at) const noexcept { return at + before - position; }
  [[nodiscard]] std::size_t place_of(std::size_t at) const noexcept { return at - position; }
};

}  // namespace terrace::engine
