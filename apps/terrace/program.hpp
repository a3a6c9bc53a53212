#pragma once

namespace terrace::apps {

inline constexpr int failed = 1;  ///< the program's status if its command failed
inline constexpr int wrong_usage = 2;

/// Runs the command that the arguments name and returns the program's status. Errors and exceptions
/// are one line on standard error.
int run_program(int argc, const char* const* argv);

}  // namespace terrace::apps
