// Memory that a step needs beside its sequences', for as long as it is under way. The runtime lends
// it: it is as much as steps are under way at once, however many sequences there are.
#pragma once

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "terrace/core/backend.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/ops.hpp"

namespace terrace {

/// Returns how many of `tokens` query tokens attend exactly at once, at most. More at once read
/// rows from the host less often.
[[nodiscard]] constexpr std::size_t most_state_tokens(std::size_t tokens) noexcept {
  return std::min<std::size_t>(tokens, 2048);
}

/// Returns the least length of a tile: a multiple of a block's and of tile_split.
[[nodiscard]] constexpr std::size_t least_tile_tokens(std::size_t block_tokens) noexcept {
  return std::lcm(tile_split, block_tokens);
}

/// Returns how many rows a tile has, at most, where `rows` rows pass: so many that a copy takes
/// longer than to wake the thread that makes it.
[[nodiscard]] constexpr std::size_t most_tile_tokens(std::size_t rows,
                                                     std::size_t block_tokens) noexcept {
  constexpr std::size_t about = 2048;
  const std::size_t least = least_tile_tokens(block_tokens);
  return least * std::max<std::size_t>(1, std::min(about / least, divide_up(rows, least)));
}

struct StepMemory {
  /// Where the blocks of a layer are while its tiles pass.
  struct Table {
    Buffer host;
    Buffer device;
  };

  std::array<Buffer, 2> tiles;  ///< rows of a tile each
  Buffer state;                 ///< TileAttention::state of some tokens of one sequence at a time
  Buffer queries;               ///< of a layer's tokens, converted to f32
  Buffer outputs;               ///< likewise, before they are converted
  std::vector<Table> tables;    ///< of layers and sequences of a step, in the order of their turns
};

}  // namespace terrace
