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

/// Says beforehand what is sure to keep replace_file() from writing `path`, so that no work is done
/// in vain.
///
/// Errors   io_error naming the file: a folder, or in one that is not there or may not be written
[[nodiscard]] Status check_replaceable(const std::string& path);

}  // namespace terrace
