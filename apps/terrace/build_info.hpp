// Which build this is.
#pragma once

#include <string_view>

namespace terrace::apps {

struct BuildInfo {
  std::string_view version;
  std::string_view commit;  ///< "-dirty" behind it when files differed; "unknown" outside of git
  std::string_view compiler;
  bool cuda = false;
};

BuildInfo build_info() noexcept;

}  // namespace terrace::apps
