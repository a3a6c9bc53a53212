// The simulator's kernels: they are enqueued, take their phase's time and touch nothing. Arguments
// that a kernel could not work with are refused, as everywhere.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::offload {

[[nodiscard]] const Ops& sim_ops() noexcept;

}  // namespace terrace::offload
