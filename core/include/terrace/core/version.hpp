// Which Terrace this is and how it was built, for headers of reports and bug reports.
#pragma once

#include <string_view>

namespace terrace {

struct BuildInfo {
  std::string_view commit;    ///< 12 digits, "-dirty" after them for changed files; or "unknown"
  std::string_view compiler;  ///< "GNU 12.2.0"
  std::string_view cuda;      ///< toolkit of the device code; "none" if there is none
};

/// Returns the version, as "0.1.0".
std::string_view version() noexcept;

/// Returns how this library was built. The commit is that of the last build, not of the configure.
const BuildInfo& build_info() noexcept;

}  // namespace terrace
