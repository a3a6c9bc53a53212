// The entries that attention goes over, as row addresses: where they come from is decided here, so
// that arithmetic sees one list.
#pragma once

#include <array>
#include <span>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Entries that pass through the arithmetic at once: few enough that their rows stay in the first
/// cache until their values are added.
constexpr std::size_t tile_rows = 32;

/// The most entries between those in work and those prefetched at the same time.
constexpr std::size_t rows_ahead_max = 2 * tile_rows;

/// A piece of a list of entries. The entries after it are for prefetches of tiles: rows that follow
/// it in the list, then copies of the last row; their biases are 0.
struct EntryPiece {
  std::size_t count = 0;
  bool biased = false;  ///< whether any entry has a bias; otherwise `bias` is not written
  /// Entries between a tile and the one prefetched at the same time. Rows in blocks are asked for
  /// early. Selected ones may lie in a page each: more than a tile of them would displace the
  /// addresses of those pages before they are used.
  std::size_t rows_ahead = 0;
  std::array<const std::byte*, attention_split + rows_ahead_max> rows;
  std::array<float, attention_split + rows_ahead_max> bias;
};

/// Returns the entries of a list: sinks, window, selected and pseudo-entries together.
std::size_t entry_count(const DecodeAttention& op, std::size_t list) noexcept;

/// Writes entries [piece * attention_split, (piece + 1) * attention_split) of a list.
void gather_piece(const DecodeAttention& op, std::size_t list, std::size_t piece,
                  EntryPiece& out) noexcept;

/// Writes rows [begin, begin + rows.size()) of a tile, as far as its last token sees them, then
/// copies of the last one. At least one row is seen.
void gather_rows(const TileAttention& op, std::size_t kv_head, std::size_t begin,
                 std::span<const std::byte*> rows) noexcept;

}  // namespace terrace::kernels::host
