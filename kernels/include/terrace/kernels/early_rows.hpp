// Rows that were fetched before their step: choosing between the lists they were fetched for and
// the step's own, and finding where each row lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/ops.hpp"

namespace terrace::kernels {

/// What came of rows that were fetched before their step.
struct EarlyOutcome {
  std::uint32_t corrected = 0;  ///< lists attended as this step's query selected them
  std::uint32_t fetched = 0;    ///< rows that had been fetched
  std::uint32_t useful = 0;     ///< entries of lists that one of them served
  std::uint32_t late = 0;       ///< rows missed all the same
  std::uint32_t wasted = 0;     ///< rows fetched for nothing
};

/// What resolve_rows takes, for a step whose rows were fetched early by the selection of the step
/// before.
struct ResolveEarlyRows {
  ResolveRows resolve;                       ///< its ids are this step's selection
  std::uint32_t* ids = nullptr;              ///< out [lists, id_stride]: what is attended
  std::uint32_t* id_count = nullptr;         ///< out [lists]
  std::size_t count = 0;                     ///< most per list
  const std::uint32_t* early_ids = nullptr;  ///< [lists, id_stride], ascending; null: none
  const std::uint32_t* early_count = nullptr;
  std::byte* const* early_rows = nullptr;       ///< [lists, id_stride], as resolve_rows found them
  std::byte* early_staging = nullptr;           ///< [lists * id_stride] rows
  const std::uint32_t* early_missed = nullptr;  ///< [1]: rows that were fetched into it
  std::uint8_t* early_used = nullptr;           ///< scratch [lists * id_stride]
  const float* query = nullptr;                 ///< [query_heads, head_dim]
  float* last_query = nullptr;                  ///< [query_heads, head_dim]: replaced by `query`
  float likeness_min = 0;                       ///< above 1: every list is this step's
  EarlyOutcome* outcome = nullptr;              ///< out [1]
};

namespace host {

/// Chooses between this step's lists and the early ones, and finds their rows.
///
/// Each list is this step's selection, cut to `count`, if one of its query heads has turned since
/// the step before: the cosine of its two queries is below `likeness_min` (NaN is), or nothing was
/// selected early. Else it is the early selection, cut alike. Rows are looked for in device blocks,
/// then among those fetched early, and are missed else; missed rows are staged as resolve_rows
/// does. A row that several lists read is useful to each of them, and wasted only if none does.
///
/// Threads  one thread at a time per `seen`
/// Source   correcting heads whose query turned: FreeKV 2025
/// Tests    tests/kernels/resolve_rows_test.cpp
void resolve_early_rows(const ResolveEarlyRows& op);

}  // namespace host
}  // namespace terrace::kernels
