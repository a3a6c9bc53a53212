// One weight per candidate from the logits of a group's query heads.
#pragma once

#include <cstddef>

#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// Logits of one KV head; `stride` is a multiple of 64 and each row is padded up to it with -inf.
struct GroupLogits {
  float* rows = nullptr;  ///< [group, stride]; overwritten
  std::size_t group = 0;
  std::size_t stride = 0;
};

/// Reduces a group's logits to weights [stride], as select.hpp says of NaN and infinities.
void reduce_group(const GroupLogits& logits, GroupReduction reduction, float* weights) noexcept;

}  // namespace terrace::kernels::host
