// Errors for files that cannot be read or written, with the system's reason.
#pragma once

#include <string>

#include "terrace/core/result.hpp"

namespace terrace {

/// Returns io_error naming the file and the reason: an errno, or 0, as streams leave it where they
/// know none. Where a link on the way to a file that is read leads to nothing, the link is named.
[[nodiscard]] tl::unexpected<Error> cannot_read(const std::string& path, int reason);
[[nodiscard]] tl::unexpected<Error> cannot_write(const std::string& path, int reason);

}  // namespace terrace
