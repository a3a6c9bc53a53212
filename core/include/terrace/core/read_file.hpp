// Reading a file whole.
#pragma once

#include <cstddef>
#include <string>

#include "terrace/core/result.hpp"

namespace terrace {

/// Returns what is in a file, a pipe or a device, of which at most `bytes_max` may come.
///
/// Errors   io_error naming the file and the system's reason, of a folder, too; invalid_argument:
///          more comes, as from a device without an end
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::size_t bytes_max);

}  // namespace terrace
