// How the rows that a layer selects are dealt out over its KV heads: some look at few rows, some at
// many, and a row more is worth most where the next one weighs most.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/core/result.hpp"

namespace terrace::policies {

/// A list is dealt at most so many times its even share, and at least 1/head_rows_least of it.
inline constexpr std::size_t head_rows_most = 2;
inline constexpr std::size_t head_rows_least = 4;

/// Returns the most rows that a KV head can be dealt where each would have `selected`.
[[nodiscard]] constexpr std::size_t dealt_rows_most(const KvShape& shape,
                                                    std::size_t selected) noexcept {
  return std::min(head_rows_most, shape.kv_heads) * selected;
}

/// A layer after its prompt.
struct HeadDeal {
  KvShape shape;
  BlockTable rows;           ///< host blocks
  std::size_t length = 0;    ///< positions there are
  std::size_t sinks = 0;     ///< of them the first, attended anyway
  std::size_t window = 0;    ///< tokens before a query's own that are attended anyway
  std::size_t selected = 0;  ///< rows of a list, over KV heads
  ListScope lists = ListScope::kv_head;
  std::span<const float>
      queries;  ///< [n, query_heads, head_dim], post-RoPE: of the last n positions
};

/// Deals rows by their attention weights, of all positions up to a query's own, in the mean over
/// some of the queries: the head whose next row weighs most gets one more, from a quarter of an
/// even share for each on. Without queries all are dealt alike.
///
/// Returns  RowCounts::shares: running sums [kv_heads]; rows_of_head({selected, shares}) are the
///          rows dealt
/// Cost     16 queries against all keys
/// Errors   invalid_argument: a shape that KvShape refuses, or no block where a position is
/// Source   absolute weights over heads: Ada-KV (arXiv 2407.11550), idea
[[nodiscard]] Result<std::vector<std::uint32_t>> deal_heads(const HeadDeal& deal,
                                                            Parallel& threads);

}  // namespace terrace::policies
