// The search for nearest centroids by products of bf16 in the tiles of a CPU that has them (AMX):
// 16 rows meet 16 centroids in one instruction. What bf16_search.hpp says holds here, too; rows and
// centroids are rounded and packed by its functions.
#pragma once

#include <cstddef>

#include "host/bf16_search.hpp"

namespace terrace::kernels::host {

/// Dimensions that a tile takes at once: only multiples are searched.
constexpr std::size_t amx_dims = 32;

/// Rows that are searched at once. Behind the last row, rows up to a multiple are read.
constexpr std::size_t amx_rows = 32;
static_assert(search_rows_max % amx_rows == 0);

/// Whether this CPU has the tiles, and the system lets this process use them, for which the first
/// call asks.
bool has_amx_search() noexcept;

/// As search_bf16_tile(), of a multiple of 32 dims.
void search_amx_tile(NearestSearch& search, const Bf16Tile& tile) noexcept;

}  // namespace terrace::kernels::host
