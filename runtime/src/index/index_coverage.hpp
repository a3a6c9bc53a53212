// Which tokens an index has coded, and in which batches.
#pragma once

#include <cstddef>
#include <vector>

#include "terrace/core/ops.hpp"

namespace terrace {

struct IndexCoverage {
  TokenRange tokens;                 ///< coded; empty = there is no index yet
  std::vector<std::size_t> batches;  ///< where the build and each later batch begin
  /// Ascending: ends of batches whose coding failed. They are coded again before anything is.
  std::vector<std::size_t> lost_ends;
  std::size_t coded_before = 0;  ///< end of `tokens` before the last extension
  std::size_t trained = 0;       ///< tokens that the codebook was trained on
  std::size_t fresh_end = 0;     ///< end of `tokens` when the index was last built
  std::size_t draft_begin = 0;   ///< end of `tokens` before the draft, or of a build amid it

  /// A new index of `built`.
  void start(TokenRange built);

  /// Where what stands for the token at `position` begins to remember tokens before it; `position`
  /// where nothing does that reaches beyond it.
  [[nodiscard]] std::size_t remembered_from(std::size_t position,
                                            std::size_t indexed_together) const noexcept;
  /// Returns where the batch begins that the token at `position` belongs to, or comes after.
  [[nodiscard]] std::size_t batch_of(std::size_t position) const noexcept;
  /// Returns where each batch that is not coded before `end` ends.
  [[nodiscard]] std::vector<std::size_t> ends_behind(std::size_t end) const;
  /// Forgets what is coded from `end` on.
  void end_at(std::size_t end) noexcept;
};

}  // namespace terrace
