// Attention to the selected rows of a KV head and to what groups have left of the others.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Writes for each query head of KV head `head` the softmax over its selected rows and the entries
/// of its groups, to be merged with those of other entries: sums of weighted values [head_dim], the
/// largest logit, to the base 2, and the sum of weights. The first result lies at `partial`, each
/// other one `stride` floats after the one before. Sets the number of entries.
///
/// Rests are not written down: the logit and the value of a rest are those of the mean less those
/// of the selected rows, which attention reads in any case.
void attend_rests(const DecodeAttention& op, std::size_t head, float* partial,
                  std::size_t stride) noexcept;

}  // namespace terrace::kernels::host
