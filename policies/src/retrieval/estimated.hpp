// Estimates of what a policy that selects rows leaves out.
#pragma once

#include <memory>

#include "rows.hpp"

namespace terrace::policies {

/// Returns a policy that selects as `base` does, and estimates the rest; `base` itself if there is
/// nothing to estimate: options.estimates.group_tokens is 0, or it selects nothing, selects by
/// exact scores, or has estimates of its own.
/// Errors: invalid_argument naming the setting that is out of range, or that it has lists of query
/// heads.
MadeRetrievalPolicy estimated(std::unique_ptr<RetrievalPolicy> base,
                              const RetrievalOptions& options);

}  // namespace terrace::policies
