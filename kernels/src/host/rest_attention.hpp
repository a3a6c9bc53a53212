// Attention to the selected rows of a KV head and to what groups have left of the others.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Writes for each query head of KV head `head` the softmax over its selected rows and the entries
/// of its groups, to be merged with those of other entries: sums of weighted values [head_dim], the
/// largest logit, to the base 2, and the sum of weights. The first lies at `partial`, the others
/// each `stride` floats behind the one before. Says how many entries there are.
///
/// No rest is written down: its logit and its value are those of the mean less those of the rows
/// that are selected, which attention reads in any case.
void attend_rests(const DecodeAttention& op, std::size_t head, float* partial,
                  std::size_t stride) noexcept;

}  // namespace terrace::kernels::host
