// The blocks of rows that a sequence has in device memory, all layers.
#pragma once

#include <cstddef>

#include "need_terms.hpp"

namespace terrace {

class RowBlocks {
 public:
  explicit RowBlocks(const NeedTerms& terms) noexcept : terms_(terms) {}

  /// Blocks of a layer that holds all rows, with the token that comes next.
  [[nodiscard]] std::size_t all() const noexcept;
  /// While it decodes token by token.
  [[nodiscard]] std::size_t held() const noexcept;
  /// More than these while a step is under way.
  [[nodiscard]] std::size_t in_step() const noexcept;
  /// That a cache of blocks has, with those of a prompt's piece that it takes over next.
  [[nodiscard]] std::size_t cached() const noexcept;
  /// Slots of a layer's cache, in its own unit; 0 = no cache.
  [[nodiscard]] std::size_t cache_slots() const noexcept;
  /// On the host.
  [[nodiscard]] std::size_t pages() const noexcept;
  /// Layers whose rows pass in tiles.
  [[nodiscard]] std::size_t tiled_layers() const noexcept;

 private:
  /// Whether a sparse layer holds all rows, too.
  [[nodiscard]] bool keeps_all() const noexcept;
  /// Blocks of a sparse layer where `more` tokens are in the window beside its own, in as many runs
  /// more.
  [[nodiscard]] std::size_t with_window(std::size_t more, std::size_t runs) const noexcept;
  /// Tokens that wait in the window until a batch of them is indexed.
  [[nodiscard]] std::size_t waiting() const noexcept;
  /// Tokens that are attended to row by row until retention decides, sinks included.
  [[nodiscard]] std::size_t undecided() const noexcept;
  /// Tokens of a piece that have left the window when the piece ends.
  [[nodiscard]] std::size_t left_behind() const noexcept;
  /// Those of so many tokens that lie in the window because they are not indexed yet.
  [[nodiscard]] std::size_t unindexed(std::size_t tokens) const noexcept;
  // Blocks of a sparse layer.
  [[nodiscard]] std::size_t with_piece(std::size_t unindexed) const noexcept;
  [[nodiscard]] std::size_t with_later_prompt() const noexcept;
  [[nodiscard]] std::size_t with_draft() const noexcept;

  const NeedTerms& terms_;
};

}  // namespace terrace
