// Sizes of tiers that are allowed and make no sense.
#pragma once

#include <optional>
#include <string>

#include "terrace/core/config.hpp"

namespace terrace::apps {

/// Returns why the file for rows is too small beside `host.memory`; nothing where it is not, or
/// where either is not named.
[[nodiscard]] std::optional<std::string> fault_of_file_size(const Config& config);

/// Returns why the daemon's memory is too large beside its file; nothing where it is not, or where
/// nobody has set it.
[[nodiscard]] std::optional<std::string> fault_of_daemon_memory(const Config& config);

}  // namespace terrace::apps
