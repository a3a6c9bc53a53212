// The search for nearest centroids by products of bf16, where a CPU has instructions for sums of
// them: twice the products an instruction, and half the bytes. The centroid that it finds nearest
// may be the second nearest in f32, so it serves where that does no harm: between iterations of
// clustering.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/centroid_tiles.hpp"

namespace terrace::kernels::host {

constexpr std::size_t bf16_tile_centroids = 64;

/// Returns the elements of a row: dims, and a zero after an odd number of them.
constexpr std::size_t bf16_row_elements(std::size_t dims) noexcept { return (dims + 1) / 2 * 2; }

/// Returns the bytes of a tile: addends [64] in f32, then coefficients [pairs of dims, 64, 2].
constexpr std::size_t bf16_tile_bytes(std::size_t dims) noexcept {
  return bf16_tile_centroids * (sizeof(float) + bf16_row_elements(dims) * sizeof(std::uint16_t));
}

/// Whether this CPU has the instructions, which rounding rows and searching need.
bool has_bf16_search() noexcept;

/// Rows as they lie, and what is taken off each before it is rounded: bf16 has eight bits, which
/// rows far from zero would all need for what they have in common.
struct RowsToRound {
  const float* rows = nullptr;  ///< [row_count, dims]
  std::size_t row_count = 0;
  std::size_t dims = 0;
  const float* origin = nullptr;  ///< [dims]
};

/// Rounds rows to bf16: [row_count, elements], with zeros after `dims`.
void rows_to_bf16(const RowsToRound& rows, std::size_t elements, std::uint16_t* rounded) noexcept;

/// Packs terms of up to 64 centroids.
void pack_bf16_tile(const DistanceTerms& terms, std::size_t dims, std::byte* tile) noexcept;

/// Rounded rows, and a packed tile of centroids to hold them against.
struct Bf16Tile {
  const std::uint16_t* rows = nullptr;  ///< [row_count, bf16_row_elements(dims)]
  const std::byte* data = nullptr;      ///< by pack_bf16_tile()
  std::size_t count = 0;                ///< of centroids
  std::uint32_t first = 0;              ///< label of the first
};

/// As search_tiles() with one tile; search.rows is not read.
void search_bf16_tile(NearestSearch& search, const Bf16Tile& tile) noexcept;

}  // namespace terrace::kernels::host
