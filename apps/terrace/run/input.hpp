// Files that a user names as input: read no further than needed, and told apart when they fail.
#pragma once

#include <cstddef>
#include <string>

#include "terrace/core/result.hpp"

namespace terrace::apps {

/// The name of standard input.
inline constexpr std::string_view standard_input = "-";

struct Input {
  std::string bytes;           ///< all of them as they are
  std::size_t file_bytes = 0;  ///< of a regular file, read or not; else as many as were read
};

/// Reads the first `wanted` bytes of a file, a pipe or a device, or all where there are fewer.
///
/// Errors   io_error naming the file and the system's reason, and where a file was cut short while
///          it was read
Result<Input> read_input(const std::string& path, std::size_t wanted);

/// Reads a whole file of a kind that is never larger than `most` bytes.
///
/// Errors   as read_input; invalid_argument: it is larger
Result<std::string> read_whole_input(const std::string& path, std::size_t most);

}  // namespace terrace::apps
