#include "build_info.hpp"

#include "build_commit.hpp"

#if defined(__clang__)
#define TERRACE_COMPILER __VERSION__
#else
#define TERRACE_COMPILER "GCC " __VERSION__
#endif

namespace terrace::apps {

BuildInfo build_info() noexcept {
  return {.version = TERRACE_VERSION, .commit = TERRACE_BUILD_COMMIT, .compiler = TERRACE_COMPILER};
}

}  // namespace terrace::apps
