// Errors for files that cannot be read or written, with the system's reason.
#pragma once

#include <string>

#include "terrace/core/result.hpp"

namespace terrace {

/// Returns io_error naming the file and the reason: an errno, or 0, which streams leave when they
/// know no errno. If a link on the way to the file leads to nothing, the error names the link.
[[nodiscard]] tl::unexpected<Error> cannot_read(const std::string& path, int reason);
[[nodiscard]] tl::unexpected<Error> cannot_write(const std::string& path, int reason);

}  // namespace terrace
