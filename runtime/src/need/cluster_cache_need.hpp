// The memory that a layer's cache of clusters takes in both tiers. Sizes follow those that
// ClusterSlots reserves.
#pragma once

#include <cstddef>

#include "need_terms.hpp"

namespace terrace {

class ClusterCacheNeed {
 public:
  /// The need of a cache of `slots` slots.
  ClusterCacheNeed(const NeedTerms& terms, std::size_t slots) noexcept;

  /// Blocks that hold the rows of cached clusters.
  [[nodiscard]] std::size_t blocks() const noexcept;
  /// The device's tables, by which rows are found.
  [[nodiscard]] std::size_t tables() const noexcept { return numbers() + block_table(); }
  /// The table of rows: two exist while it grows.
  [[nodiscard]] std::size_t growing() const noexcept { return numbers(); }
  /// On the host: pending changes, and the lists that tables are made from.
  [[nodiscard]] std::size_t host() const noexcept;

 private:
  [[nodiscard]] std::size_t numbers() const noexcept;
  [[nodiscard]] std::size_t block_table() const noexcept;

  const NeedTerms& terms_;
  std::size_t slot_rows_;
  std::size_t slots_per_block_;
  std::size_t slots_;  ///< as many as all rows of the sequence may fill, at most
};

}  // namespace terrace
