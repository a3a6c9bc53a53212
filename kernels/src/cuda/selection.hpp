// What selections share once the logits of all candidates are there.
#pragma once

#include <cmath>

#include "terrace/core/ops.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::kernels::cuda {

/// Returns how far rows of logits lie apart in the scratch memory, [kv_heads, group + 1, stride]:
/// logits of the group's query heads, then a row of the head's weights.
constexpr std::size_t logit_stride(const SelectCommon& common) noexcept {
  return (common.candidates.size() + 63) / 64 * 64;
}

/// Returns what scores are multiplied by to be logits.
inline float logit_scale(const KvShape& shape) noexcept {
  return 1.0F / std::sqrt(static_cast<float>(shape.head_dim));
}

/// Reduces logits to weights and chooses the largest. At most two launches.
[[nodiscard]] Status choose_largest(const SelectCommon& common, const Launch& launch);

}  // namespace terrace::kernels::cuda
