// The memory that a layer's cache of rows takes in both tiers. Sizes follow those that RowCache
// reserves.
#pragma once

#include <cstddef>

#include "need_terms.hpp"

namespace terrace {

class RowCacheNeed {
 public:
  /// The need of a cache of `slots` slots, which are blocks.
  RowCacheNeed(const NeedTerms& terms, std::size_t slots) noexcept;

  /// Blocks that hold cached rows.
  [[nodiscard]] std::size_t blocks() const noexcept { return blocks_; }
  /// The device's tables, by which rows are found and replaced.
  [[nodiscard]] std::size_t tables() const noexcept;
  /// Tables that there are two of while they grow.
  [[nodiscard]] std::size_t growing() const noexcept;
  /// On the host: the zeros that tables are cleared from, and the table of blocks.
  [[nodiscard]] std::size_t host() const noexcept;

 private:
  [[nodiscard]] std::size_t numbers() const noexcept;
  [[nodiscard]] std::size_t slots() const noexcept;

  const NeedTerms& terms_;
  std::size_t blocks_;  ///< as many as all rows of the sequence may fill, at most
};

}  // namespace terrace
