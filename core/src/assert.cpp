// tidy-allow(library_calls): to print and to abort is what an assertion is for.
#include "terrace/core/assert.hpp"

#include <cstdio>
#include <cstdlib>

namespace terrace {

void assertion_failed(const char* condition, std::source_location where) noexcept {
  std::fprintf(stderr, "%s:%u: assertion failed in %s: %s\n", where.file_name(), where.line(),
               where.function_name(), condition);
  std::abort();
}

}  // namespace terrace
