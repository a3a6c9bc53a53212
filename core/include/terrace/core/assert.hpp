// Assertions for our own bugs: never for input, never for what a device or a file answers.
#pragma once

#include <source_location>

namespace terrace {

/// Stops the process with the failed condition and its place on stderr. Only the macros call it.
[[noreturn]] void assertion_failed(const char* condition, std::source_location where) noexcept;

}  // namespace terrace

/// Stops the program when `condition` is false. Always on; for the control plane.
#define TERRACE_ASSERT(condition)     \
  ((condition) ? static_cast<void>(0) \
               : ::terrace::assertion_failed(#condition, std::source_location::current()))

/// The same in builds without NDEBUG only; for inner loops.
#ifdef NDEBUG
#define TERRACE_DEBUG_ASSERT(condition) static_cast<void>(0)
#else
#define TERRACE_DEBUG_ASSERT(condition) TERRACE_ASSERT(condition)
#endif
