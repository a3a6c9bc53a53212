// Reading keys; the arguments must be checked already.
#pragma once

#include "terrace/kernels/rows.hpp"

namespace terrace::kernels::host {

/// read_keys() without its checks.
void widen_keys(const KeySlice& slice, float* target) noexcept;

}  // namespace terrace::kernels::host
