// The host's kernels (terrace/kernels) as the table of ops: each is one host function on a queue.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::offload {

[[nodiscard]] const Ops& host_ops() noexcept;

}  // namespace terrace::offload
