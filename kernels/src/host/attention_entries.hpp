// The entries that attention goes over, as row addresses: where they come from is decided here, so
// that arithmetic sees one list.
#pragma once

#include <array>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Entries that pass through the arithmetic at once: few enough that their rows and those of the
/// next tile fit into the first cache.
constexpr std::size_t tile_rows = 32;

/// A piece of a list of entries. Behind it comes what a tile more may look at: rows that follow it
/// in the list, to be prefetched, then the last one again and again; and biases of 0.
struct EntryPiece {
  std::size_t count = 0;
  bool biased = false;  ///< whether there is any bias; else `bias` is not written
  std::array<const std::byte*, attention_split + tile_rows> rows;
  std::array<float, attention_split + tile_rows> bias;
};

/// Returns the entries of a list: sinks, window, selected and pseudo-entries together.
std::size_t entry_count(const DecodeAttention& op, std::size_t list) noexcept;

/// Writes entries [piece * attention_split, (piece + 1) * attention_split) of a list.
void gather_piece(const DecodeAttention& op, std::size_t list, std::size_t piece,
                  EntryPiece& out) noexcept;

}  // namespace terrace::kernels::host
