// Reading a file whole.
#pragma once

#include <string>

#include "terrace/core/result.hpp"

namespace terrace {

/// Returns what is in a file, a pipe or a device that ends.
///
/// Errors   io_error naming the file and the system's reason, of a folder, too
[[nodiscard]] Result<std::string> read_file(const std::string& path);

}  // namespace terrace
