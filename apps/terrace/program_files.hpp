// Files that come with the program, found from the build tree and from an install prefix,
// independent of the working directory.
#pragma once

#include <filesystem>
#include <vector>

#include "terrace/core/result.hpp"

namespace terrace::apps {

/// Returns the folder of the bundled model. Errors: io_error naming --model.
Result<std::filesystem::path> bundled_model();

/// Returns the folder for temporary files: that of TMPDIR, else /tmp. Errors: io_error naming both
/// the variable and what it says, where that is no folder.
Result<std::filesystem::path> temporary_folder();

/// Returns folders that may hold prose, best first; they need not exist.
std::vector<std::filesystem::path> default_text_folders();

}  // namespace terrace::apps
