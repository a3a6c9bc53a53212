// Writing a file whole or not at all.
#pragma once

#include <string>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace {

/// Writes `content` under a temporary name beside `path` and renames it, so that nobody ever reads
/// half of it and an error leaves what was there.
///
/// Errors   io_error naming the file and the system's reason
[[nodiscard]] Status replace_file(const std::string& path, std::string_view content);

}  // namespace terrace
