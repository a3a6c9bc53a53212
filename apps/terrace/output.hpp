// Printing: results on standard output, messages on standard error.
//
// A stream that is full, closed or a broken pipe never ends the program. A message that cannot be
// written is lost; a result that cannot be written makes the exit status 1.
//
//   print_out("{} rows\n", rows);
//   warn("the profile is {} days old", days);
#pragma once

#include <fmt/core.h>

#include "terrace/core/result.hpp"

namespace terrace::apps {

/// Formats text and writes it to standard output; flush_results() tells of what went wrong.
void print_text(fmt::string_view format, fmt::format_args arguments) noexcept;

/// Formats text and writes it to standard error, `head` before it.
void say_text(fmt::string_view head, fmt::string_view format, fmt::format_args arguments) noexcept;

template <typename... T>
void print_out(fmt::format_string<T...> format, T&&... arguments) {
  print_text(format, fmt::make_format_args(arguments...));
}

/// Writes unchanged text to standard error, for progress, which is not a line.
template <typename... T>
void say_bare(fmt::format_string<T...> format, T&&... arguments) {
  say_text("", format, fmt::make_format_args(arguments...));
}

/// Writes a line to standard error, "terrace: " before it.
template <typename... T>
void say(fmt::format_string<T...> format, T&&... arguments) {
  say_text("terrace: ", format, fmt::make_format_args(arguments...));
}

/// Writes a line to standard error, "terrace: warning: " before it.
template <typename... T>
void warn(fmt::format_string<T...> format, T&&... arguments) {
  say_text("terrace: warning: ", format, fmt::make_format_args(arguments...));
}

/// Writes out what was printed. Errors: io_error: some of it is lost, and the system's reason.
[[nodiscard]] Status flush_results();

/// Opens each standard stream that is closed, so that no file of the user gets its number: reading
/// and writing the stream still fails. To be called before any file is opened.
void occupy_closed_streams() noexcept;

}  // namespace terrace::apps
