// How much device memory a sequence needs. Sizes follow those that SequenceRows, Workspace,
// DeviceIndexes, LayerCache, AttentionSums and LentStepMemory reserve.
#pragma once

#include <cstddef>

#include "need_terms.hpp"
#include "row_blocks.hpp"

namespace terrace {

/// The parts are those of MemoryNeed.
class DeviceNeed {
 public:
  explicit DeviceNeed(const NeedTerms& terms) noexcept : terms_(terms), blocks_(terms) {}

  [[nodiscard]] std::size_t held() const noexcept {
    return rows() + workspace() + selections() + indexes() + terms_.entry_bytes() + weights();
  }
  [[nodiscard]] std::size_t cache() const noexcept;
  [[nodiscard]] std::size_t step() const noexcept;
  [[nodiscard]] std::size_t shared() const noexcept;

 private:
  /// Blocks of rows, and the tables that name them.
  [[nodiscard]] std::size_t rows() const noexcept;
  /// Memory for so many blocks of a pool, which is taken slab by slab.
  [[nodiscard]] std::size_t slabs(std::size_t blocks) const noexcept;
  [[nodiscard]] std::size_t workspace() const noexcept;
  [[nodiscard]] std::size_t select_workspace() const noexcept;
  [[nodiscard]] std::size_t selections() const noexcept;
  [[nodiscard]] std::size_t indexes() const noexcept;
  /// Weights of attention on their way to the host.
  [[nodiscard]] std::size_t weights() const noexcept;
  /// A cache of clusters or of rows, which has tables beside its blocks.
  template <typename LayerNeed>
  [[nodiscard]] std::size_t slotted_cache(const LayerNeed& layer) const noexcept;
  /// Rows of all lists together.
  [[nodiscard]] std::size_t listed_rows() const noexcept {
    return terms_.lists() * terms_.list_rows();
  }

  const NeedTerms& terms_;
  RowBlocks blocks_;
};

}  // namespace terrace
