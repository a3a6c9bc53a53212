// How much memory of the host a sequence needs, of what counts against the limit of the tier. Sizes
// follow those that LayerRows, IndexRoom, SelectionLists, KeptEntries, LastQueries, AttentionSums
// and ClusterSlots reserve.
#pragma once

#include <cstddef>

#include "need_terms.hpp"
#include "row_blocks.hpp"

namespace terrace {

/// The parts are those of MemoryNeed.
class HostNeed {
 public:
  explicit HostNeed(const NeedTerms& terms) noexcept : terms_(terms), blocks_(terms) {}

  [[nodiscard]] std::size_t rows() const noexcept;
  [[nodiscard]] std::size_t index() const noexcept;
  [[nodiscard]] std::size_t rest() const noexcept {
    return selections() + tables() + retention() + cache() + sample();
  }

 private:
  [[nodiscard]] std::size_t selections() const noexcept;
  /// Tables of tiles.
  [[nodiscard]] std::size_t tables() const noexcept;
  [[nodiscard]] std::size_t retention() const noexcept;
  [[nodiscard]] std::size_t weights() const noexcept;
  [[nodiscard]] std::size_t cache() const noexcept;
  /// The queries of a sample of the attention mass.
  [[nodiscard]] std::size_t sample() const noexcept;

  const NeedTerms& terms_;
  RowBlocks blocks_;
};

}  // namespace terrace
