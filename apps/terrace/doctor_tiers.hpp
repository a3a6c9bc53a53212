// The checks of `terrace doctor` on tiers below the host: the file, the servers, the daemon.
#pragma once

#include <vector>

#include "doctor_checks.hpp"

namespace terrace::apps {

/// Each waits for at most a second. Nothing is written.
std::vector<CheckResult> check_tiers(const Config& config);

/// Says whether O_DIRECT works in a folder, and what to do if it does not.
CheckResult check_direct_io_in(const std::string& folder);

}  // namespace terrace::apps
