// The entries that attention goes over, as row addresses: where they come from is decided here, so
// that arithmetic sees one list.
#pragma once

#include <array>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Entries that pass through the arithmetic at once: few enough that their rows and those of the
/// next tile fit into the first cache.
constexpr std::size_t tile_rows = 16;

/// A piece of a list of entries, filled up so that there is a whole tile behind its last one: rows
/// by the last row, biases by 0.
struct EntryPiece {
  std::size_t count = 0;
  std::array<const std::byte*, attention_split + tile_rows> rows;
  std::array<float, attention_split> bias;
};

/// Returns how many lists the op has: its KV heads, or its query heads.
std::size_t list_count(const DecodeAttention& op) noexcept;

/// Returns the entries of a list: sinks, window, selected and pseudo-entries together.
std::size_t entry_count(const DecodeAttention& op, std::size_t list) noexcept;

/// Writes entries [piece * attention_split, (piece + 1) * attention_split) of a list.
void gather_piece(const DecodeAttention& op, std::size_t list, std::size_t piece,
                  EntryPiece& out) noexcept;

}  // namespace terrace::kernels::host
