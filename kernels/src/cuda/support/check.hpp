// CUDA's answers as values: the one place where a cudaError_t is looked at.
//
//   TERRACE_TRY(check(cudaMalloc(&data, bytes), "allocating device memory"));
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace::cuda {

/// Turns an answer into a Status. `doing` names the attempt in the message.
///
/// An error that leaves the device usable is cleared: it is not reported again by a later call.
///
/// Errors   out_of_memory; unsupported: no driver, no device, or one that is too old;
///          device_lost: nothing on this device works in this process any more;
///          device_error: this call failed
[[nodiscard]] Status check(cudaError_t answer, std::string_view doing);

/// Checks the answer to the question whether work is done.
[[nodiscard]] Result<bool> check_done(cudaError_t answer, std::string_view doing);

/// Checks a call that a driver may lack: false if it lacks it.
[[nodiscard]] Result<bool> check_supported(cudaError_t answer, std::string_view doing);

}  // namespace terrace::cuda
