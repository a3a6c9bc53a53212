#include "terrace/core/version.hpp"

#include <string_view>

#include "terrace.h"

// The text of core's version is a literal, which ends with a zero byte.
const char* terrace_version() { return terrace::version().data(); }

uint32_t terrace_abi_version() { return TERRACE_ABI_VERSION; }
