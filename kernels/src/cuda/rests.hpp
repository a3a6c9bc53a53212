// The rests that selections leave of groups, as rows that attention reads like others.
#pragma once

#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/kernels/cuda/launch.hpp"

namespace terrace::kernels::cuda {

/// Writes the rests of those attentions that have some: see with_rests_written(). Two launches and
/// choose_largest's for as many calls as one takes.
[[nodiscard]] Status write_rests(std::span<const DecodeAttention> batch, const Launch& launch);

}  // namespace terrace::kernels::cuda
