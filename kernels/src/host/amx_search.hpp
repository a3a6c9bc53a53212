// The search for nearest centroids by products of bf16 in the tiles of a CPU that has them (AMX):
// 16 centroids meet 16 rows in one instruction, 32 dimensions at a time.
//
// Rows are packed in blocks of 16, centroids of 32, whose dimensions are filled up with zeros to
// multiples of 32. A sum's line is a centroid and its lane a row: the nearest centroid of a row is
// kept in the row's own lane, and nobody looks across lanes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "host/centroid_tiles.hpp"
#include "terrace/core/bytes.hpp"

namespace terrace::kernels::host {

constexpr std::size_t amx_dims = 32;       ///< that a tile takes at once
constexpr std::size_t amx_rows = 16;       ///< of a block
constexpr std::size_t amx_centroids = 32;  ///< of a block: two tiles
static_assert(search_rows_max % amx_rows == 0);

/// What becomes of f32 numbers.
enum class AmxNumbers : std::uint8_t {
  rounded = 1,  ///< to bf16, which errs by 2^-9 of a number
  split = 2,  ///< to a sum of two bf16: products err by 2^-16, about as sums of f32 do. Takes three
              ///< times the products
};

struct AmxShape {
  std::size_t dims = 0;
  AmxNumbers numbers = AmxNumbers::rounded;

  static constexpr std::size_t tile_bytes = 1024;

  /// Of 32 dimensions each.
  [[nodiscard]] constexpr std::size_t steps() const noexcept { return divide_up(dims, amx_dims); }

  /// Returns the bytes of 16 rows: [parts, steps, 16 pairs of dimensions, 16 rows, 2] bf16.
  [[nodiscard]] constexpr std::size_t row_block_bytes() const noexcept {
    return parts() * steps() * tile_bytes;
  }

  /// Returns the bytes of 32 centroids: coefficients [parts, steps, 32, 32 dimensions] bf16, then
  /// addends [32] f32; see centroid_tiles.hpp.
  [[nodiscard]] constexpr std::size_t centroid_block_bytes() const noexcept {
    return addends_offset() + amx_centroids * sizeof(float);
  }
  [[nodiscard]] constexpr std::size_t addends_offset() const noexcept {
    return parts() * steps() * 2 * tile_bytes;
  }

  /// Of a number.
  [[nodiscard]] constexpr std::size_t parts() const noexcept {
    return static_cast<std::size_t>(numbers);
  }
};

/// Whether this CPU has the tiles, and the system lets this process use them, for which the first
/// call asks.
bool has_amx_search() noexcept;

/// Packs rows by rows_to_bf16() into blocks of 16, for AmxNumbers::rounded. What the last block
/// lacks is the last row again.
void pack_amx_rounded_rows(std::size_t dims, const std::uint16_t* rows, std::size_t row_count,
                           std::byte* packed) noexcept;

/// Packs rows [row_count, dims] so, for AmxNumbers::split.
void pack_amx_split_rows(std::size_t dims, const float* rows, std::size_t row_count,
                         std::byte* packed) noexcept;

/// Packs centroids [count, dims] into blocks of 32. What the last block lacks is infinitely far.
void pack_amx_centroids(const AmxShape& shape, const float* centroids, std::size_t count,
                        Metric metric, std::byte* packed) noexcept;

/// Both packed by the functions above, aligned to 64 bytes.
struct AmxSearch {
  AmxShape shape;
  const std::byte* rows = nullptr;
  std::size_t row_count = 0;  ///< at most search_rows_max
  const std::byte* centroids = nullptr;
  std::size_t centroid_count = 0;
};

/// Writes the label of each row's nearest centroid, ties to the lower one: [row_count]. Where no
/// distance is below infinity the label is 0.
void search_amx(const AmxSearch& search, std::uint32_t* labels) noexcept;

}  // namespace terrace::kernels::host
