// Captures of streams into graphs: which calls they forbid, to which threads.
#pragma once

#include <string_view>

#include "cuda_runtime.h"

namespace cuda_on_host {

/// Returns the error of a call that a capture under way forbids to the calling thread, and ends the
/// captures that forbid it: they are invalid from then on. Success where none does.
cudaError_t check_captures(std::string_view function);

/// Whether a stream takes work into a graph, and does none of it.
bool is_capturing(cudaStream_t stream);

}  // namespace cuda_on_host
