// Sums of rows' numbers, in f32.
#pragma once

#include <cstddef>

#include "terrace/core/dtype.hpp"

namespace terrace::kernels::host {

/// Adds weight * number to each of `count` sums; with a weight of 1 or -1 the bits are the same on
/// every instruction set.
void add_row(const std::byte* row, Dtype dtype, float weight, std::size_t count,
             float* sums) noexcept;

}  // namespace terrace::kernels::host
