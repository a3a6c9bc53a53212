// The search by products of bf16 in registers of two dimensions, whatever they are: a CPU's (AMX),
// or the tests' own. Two blocks of 16 rows meet two of 16 centroids at a time, 32 dimensions a
// step. To be included where the instructions are allowed that it is to be compiled to.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "host/amx_search.hpp"

namespace terrace::kernels::host {

/// One number for each of 16 centroids.
using Lanes = float __attribute__((vector_size(64), may_alias));
using LaneLabels = std::uint32_t __attribute__((vector_size(64), may_alias));
constexpr LaneLabels lane_numbers{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/// Sums of 32 rows, in two blocks, and 32 centroids, in two.
struct TileSums {
  Lanes of[2][2][16];
};

/// Lowers distances of up to 32 rows from `row` on to those of 32 centroids, whose first has label
/// `first`. Compiled for each kind of tiles, because each allows other instructions.
template <typename Tiles>
void keep_nearest(NearestSearch& search, std::size_t row, const TileSums& sums,
                  std::uint32_t first) noexcept {
  const std::size_t rows = std::min(amx_rows, search.row_count - row);
  for (std::size_t r = 0; r < rows; ++r) {
    auto& least = *reinterpret_cast<Lanes*>(&search.distances[(row + r) * 16]);
    auto& nearest = *reinterpret_cast<LaneLabels*>(&search.labels[(row + r) * 16]);
    for (std::uint32_t block = 0; block < 2; ++block) {
      const Lanes found = sums.of[r / 16][block][r % 16];
      const auto nearer = found < least;
      least = nearer ? found : least;
      nearest = nearer ? lane_numbers + (first + block * 16) : nearest;
    }
  }
}

/// search_amx_tile() with `Tiles` for registers:
///   begin(addends)              each row's sums are the addends of 32 centroids
///   add(rows, stride, coefficients, stride)   adds products of 32 dimensions: of 32 rows, and of
///                               16 pairs of dimensions of 32 centroids; strides in bytes
///   store(sums)
template <typename Tiles>
void search_in_tiles(Tiles& tiles, NearestSearch& search, const Bf16Tile& tile) noexcept {
  constexpr std::size_t line_bytes = bf16_tile_centroids * 2 * sizeof(std::uint16_t);
  const std::size_t row_bytes = search.dims * sizeof(std::uint16_t);
  TileSums sums;
  for (std::size_t row = 0; row < search.row_count; row += amx_rows) {
    for (std::size_t c = 0; c < tile.count; c += 32) {
      const std::byte* const coefficients =
          tile.data + bf16_tile_centroids * sizeof(float) + c * 2 * sizeof(std::uint16_t);
      tiles.begin(reinterpret_cast<const float*>(tile.data) + c);
      for (std::size_t dim = 0; dim < search.dims; dim += amx_dims) {
        tiles.add(tile.rows + row * search.dims + dim, row_bytes,
                  coefficients + dim / 2 * line_bytes, line_bytes);
      }
      tiles.store(sums);
      keep_nearest<Tiles>(search, row, sums, tile.first + static_cast<std::uint32_t>(c));
    }
  }
}

}  // namespace terrace::kernels::host
