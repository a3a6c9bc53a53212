// A second stage after any policy that selects.
#pragma once

#include <memory>

#include "rows.hpp"

namespace terrace::policies {

/// Returns a policy that selects among what `base` proposes by codes of the keys' rests; `base`
/// itself if there is nothing to refine: options.refine.bits is 0, or it selects nothing or by
/// exact scores.
/// Errors: invalid_argument naming the setting that is out of range, or what cannot be refined.
MadeRetrievalPolicy refined(std::unique_ptr<RetrievalPolicy> base, const RetrievalOptions& options);

}  // namespace terrace::policies
