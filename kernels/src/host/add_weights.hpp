// Weights of a softmax that attention kept while its maximum was not known.
#pragma once

#include "host/attention_entries.hpp"

namespace terrace::kernels::host {

/// Weights of one query head for entries of one piece, and what all pieces add up to.
struct KeptWeights {
  const float* weights = nullptr;  ///< [count]: 2^(logit - base)
  const float* bases = nullptr;    ///< of each tile_rows weights
  std::size_t count = 0;           ///< at most attention_split
  float maximum = 0;               ///< of all logits, to the base 2
  float sum = 0;                   ///< of 2^(logit - maximum), over all
};

/// Adds each weight, with the sum of all being 1, to its place of `sums`: [count]. A sum of 0,
/// which is that of logits that are all -inf, adds nothing.
void add_weights(const KeptWeights& head, float* sums) noexcept;

}  // namespace terrace::kernels::host
