// One weight per candidate, or per kind of candidate, from the logits of a group's query heads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Logits of one KV head; each row is padded up to `size` with -inf.
struct GroupLogits {
  float* rows = nullptr;  ///< [group, stride]; overwritten
  std::size_t group = 0;
  std::size_t stride = 0;
  std::size_t size = 0;  ///< of a row that is used: a multiple of 64
  /// [size]: candidates that have each logit. Null: one each.
  const std::uint32_t* counts = nullptr;
};

/// Reduces a group's logits to weights [size]; select.hpp defines NaN and infinities.
void reduce_group(const GroupLogits& logits, GroupReduction reduction, float* weights) noexcept;

}  // namespace terrace::kernels::host
