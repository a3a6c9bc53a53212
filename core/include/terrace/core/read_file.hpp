// Reading a file whole.
#pragma once

#include <cstddef>
#include <string>

#include "terrace/core/result.hpp"

namespace terrace {

/// Returns the content of a file, a pipe or a device, at most `bytes_max` bytes.
///
/// Errors   io_error naming the file and the system's reason, for a folder, too; invalid_argument:
///          more comes, as from an endless device
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

}  // namespace terrace
