// Attention of some query heads to one piece of a list of entries: what each op that attends is
// made of.
//
//   gather_piece(op, list, piece, entries);
//   attend_piece(entries, heads, op.shape);   // a softmax of its own, for others to merge
//
// Not here: which entries a piece has (attention_entries.hpp), and how pieces are merged.
#pragma once

#include "host/attention_entries.hpp"

namespace terrace::kernels::host {

constexpr std::size_t heads_per_pass = 8;  ///< query heads that share one reading of the rows

/// Query heads that attend to one piece, and where their parts of the result go.
struct PieceHeads {
  const float* query = nullptr;  ///< [count, head_dim]
  std::size_t count = 0;         ///< at most heads_per_pass
  float scale = 1;               ///< of logits
  /// For head 0: sums of weighted values [head_dim], the maximum of the logits, to the base 2, and
  /// the sum of weights.
  float* partial = nullptr;
  std::size_t partial_stride = 0;  ///< floats between heads
  /// Out: for head 0 the entries' weights 2^(logit - base), and the base of each tile_rows of them;
  /// null = not wanted.
  float* weights = nullptr;
  float* bases = nullptr;
  std::size_t kept_stride = 0;  ///< of both, floats between heads
};

/// Computes the softmax of each head over a piece of at least one entry. A head's bits do not
/// depend on the other heads.
void attend_piece(const EntryPiece& piece, const PieceHeads& heads, const KvShape& shape) noexcept;

}  // namespace terrace::kernels::host
