// The settings of retrieval policies as one line, for programs: equal lines, equal settings.
#pragma once

#include <string>

#include "terrace/policies/retrieval.hpp"

namespace terrace::policies {

/// Returns all settings, in a fixed order. Indexes of policies with the same line are alike.
[[nodiscard]] std::string settings_text(const RetrievalOptions& options);

}  // namespace terrace::policies
