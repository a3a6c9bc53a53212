// The table of kernels for CUDA. Its ops are enqueued on queues of a CudaBackend alone.
#pragma once

#include "terrace/core/ops.hpp"

namespace terrace::offload {

[[nodiscard]] const Ops& cuda_ops() noexcept;

}  // namespace terrace::offload
