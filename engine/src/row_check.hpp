// Keys and values that the KV dtype cannot hold are an error: stored, they would be infinite, and
// all that attends to them would be no number.
#pragma once

#include <span>

#include "terrace/core/dtype.hpp"
#include "terrace/core/result.hpp"

namespace terrace::engine {

/// Checks the keys and values of a layer before they are rounded to `dtype`.
///
/// Cost     reads each once
/// Errors   unsupported: one is too large for the dtype, or not finite; names the layer
Status check_rows(std::size_t layer, std::span<const float> keys, std::span<const float> values,
                  Dtype dtype);

/// The error if only one fact is known: that some row does not fit.
tl::unexpected<Error> unfit_rows(std::size_t layer, Dtype dtype);

/// Checks a model's prediction after the token at `position`.
///
/// Errors   unsupported: a logit is not finite; names the position
Status check_logits(std::span<const float> logits, std::size_t position);

}  // namespace terrace::engine
