// The search for nearest centroids by products of bf16 in the tiles of a CPU that has them (AMX):
// 16 centroids meet 16 rows in one instruction, 32 dimensions at a time.
//
// A sum's line is a row and its lane a centroid, so rows keep their layout: one after the other,
// their dimensions filled up with zeros to multiples of 32. Centroids are packed in tiles of 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/bf16_search.hpp"
#include "host/centroid_tiles.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::kernels::host {

constexpr std::size_t amx_dims = 32;       ///< that a tile takes at once
constexpr std::size_t amx_rows = 16;       ///< that meet a tile at once
constexpr std::size_t amx_centroids = 16;  ///< of a block
static_assert(search_rows_max % amx_rows == 0);

/// The form that f32 numbers are given.
enum class AmxNumbers : std::uint8_t {
  rounded = 1,  ///< to bf16, which errs by up to 2^-8 of a number
  split = 2,    ///< to a sum of two bf16: products err by up to 2^-14, and most errors cancel.
                ///< Takes three times the products
};

struct AmxShape {
  std::size_t dims = 0;
  AmxNumbers numbers = AmxNumbers::rounded;

  static constexpr std::size_t line_bytes = amx_dims * sizeof(std::uint16_t);  // of a tile
  static constexpr std::size_t tile_bytes = amx_rows * line_bytes;

  /// Returns the number of steps that a row takes, each of 32 dimensions.
  [[nodiscard]] constexpr std::size_t steps() const noexcept { return divide_up(dims, amx_dims); }

  /// Returns the elements and the bytes of a row: [parts, steps, 32 dimensions] bf16.
  [[nodiscard]] constexpr std::size_t row_elements() const noexcept {
    return parts() * steps() * amx_dims;
  }
  [[nodiscard]] constexpr std::size_t row_bytes() const noexcept {
    return row_elements() * sizeof(std::uint16_t);
  }

  /// Returns the bytes of 16 centroids: coefficients [parts, steps, 16 pairs of dimensions, 16
  /// centroids, 2] bf16, then addends [16] f32; see centroid_tiles.hpp.
  [[nodiscard]] constexpr std::size_t centroid_block_bytes() const noexcept {
    return addends_offset() + amx_centroids * sizeof(float);
  }
  [[nodiscard]] constexpr std::size_t addends_offset() const noexcept {
    return parts() * steps() * tile_bytes;
  }

  /// Returns how many bf16 parts a number has.
  [[nodiscard]] constexpr std::size_t parts() const noexcept {
    return static_cast<std::size_t>(numbers);
  }
};

/// Whether this CPU has the tiles, and the system lets this process use them, for which the first
/// call asks.
bool has_amx_search() noexcept;

/// Splits rows, for AmxNumbers::split: [row_count, row_elements()]. Those for AmxNumbers::rounded
/// are rows_to_bf16().
void split_amx_rows(const RowsToRound& rows, std::uint16_t* split) noexcept;

/// Packs terms into blocks of 16 centroids. Centroids that the last block lacks are infinitely far.
void pack_amx_centroids(const AmxShape& shape, const DistanceTerms& terms,
                        std::byte* packed) noexcept;

/// Both by the functions above, aligned to 64 bytes.
struct AmxSearch {
  AmxShape shape;
  const std::byte* rows = nullptr;  ///< readable up to a multiple of 16 rows, with any content
  std::size_t row_count = 0;        ///< at most search_rows_max
  const std::byte* centroids = nullptr;
  std::size_t centroid_count = 0;
};

/// Writes the label of each row's nearest centroid: [row_count]. For rounded numbers it may be the
/// label of another centroid whose distance differs by less than 2^-13 of the least one; for split
/// numbers ties go to the lower label. If no distance is below infinity the label is 0.
void search_amx(const AmxSearch& search, std::uint32_t* labels) noexcept;

}  // namespace terrace::kernels::host
