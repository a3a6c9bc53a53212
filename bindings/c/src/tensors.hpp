// The tensors of a step, and views of rows, between C's structs and the runtime's.
#pragma once

#include <cstddef>
#include <vector>

#include "terrace.h"
#include "terrace/core/retrieval.hpp"
#include "terrace/core/shape.hpp"
#include "terrace/runtime/sequence_data.hpp"
#include "terrace/runtime/step.hpp"

namespace terrace::bindings {

/// Tensors of a layer, with the hints that they point to.
struct LayerTensors {
  StepTensors tensors = {};
  std::vector<PromptHints> hints = {};
};

/// Errors: those of read_struct; invalid_argument: an unknown dtype.
[[nodiscard]] Result<LayerTensors> read_tensors(const terrace_tensors* given,
                                                std::size_t sequences);

/// Errors: invalid_argument: a view that write_view could not set.
[[nodiscard]] Status check_views(terrace_view* const* views, std::size_t sequences);
[[nodiscard]] Status write_view(terrace_view* target, const KvView& view, const KvShape& shape);

}  // namespace terrace::bindings
