// How long a container takes to be read when it is opened.
#pragma once

#include <string>

#include "harness/question.hpp"

namespace terrace::bench {

/// Asks for the time to open a container of a million pages, or of 2,000 if `quick`: it is filled
/// first, and some of its pages are compared after. Nothing of it stays in the folder.
[[nodiscard]] Question open_question(const std::string& folder, bool quick);

}  // namespace terrace::bench
