// How Terrace reports what went wrong: values, never exceptions, never prints.
//
//   Result<Pages> pages = pool.allocate(count);
//   if (!pages) return tl::unexpected(pages.error().while_doing("opening sequence"));
//
// Bad input and hardware faults are `Error` values. Programming errors are assertions
// (terrace/core/assert.hpp).
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <optional>
#include <source_location>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "terrace/core/tier.hpp"

namespace terrace {

/// The kind of an error, by what the caller can do about it. Closed: a new code is a new kind of
/// answer.
enum class Errc : std::uint8_t {
  invalid_argument,  ///< correct the input; nothing was changed
  out_of_memory,     ///< evict, shrink the request, or raise the limit; then retry
  not_ready,         ///< wait and retry; nothing was lost
  unsupported,       ///< choose another option; asking again will not help
  device_error,      ///< this operation failed; the backend goes on
  device_lost,       ///< drop the backend and all that lives on it
  io_error,          ///< a file or store failed; look at the native code
  corrupt,           ///< the bytes are not what was written; treat as a miss
  cancelled,         ///< stopped on request or at a deadline
};

/// Returns the enumerator's name, for messages and JSON.
std::string_view to_string(Errc code) noexcept;

/// An error: a code to act on and a line to read.
///
/// Trivially copyable with inline text, so that reporting out-of-memory allocates nothing.
/// Text longer than the buffer is cut.
struct Error {
  static constexpr std::size_t text_capacity = 240;

  Errc code = Errc::invalid_argument;
  std::int32_t native = 0;      ///< errno, cudaError_t, ...; 0 if there is no such number
  std::optional<Tier> lacks{};  ///< out_of_memory: the tier that has no room, where it is known
  std::uint16_t text_size = 0;
  std::array<char, text_capacity> text{};
  std::source_location where{};

  /// Returns the line to show to a person: what is wrong, with names, and what to do.
  [[nodiscard]] std::string_view message() const noexcept { return {text.data(), text_size}; }

  /// Returns this error with "`context`: " put before its message.
  [[nodiscard]] Error while_doing(std::string_view context) const noexcept;
};

/// A format string that remembers where it was written, so that errors know their origin.
template <typename... Args>
struct LocatedFormat {
  fmt::format_string<Args...> format;
  std::source_location where;

  template <typename Text>
  consteval LocatedFormat(const Text& text,  // NOLINT(google-explicit-constructor): call syntax
                          std::source_location here = std::source_location::current())
      : format(text), where(here) {}
};

/// Out of line, so that callers compile no formatting of their own.
[[nodiscard]] Error format_error(Errc code, std::source_location where, fmt::string_view format,
                                 fmt::format_args args) noexcept;

/// Makes an error from a code and a fmt format string.
template <typename... Args>
[[nodiscard]] Error make_error(Errc code, LocatedFormat<std::type_identity_t<Args>...> text,
                               Args&&... args) noexcept {
  return format_error(code, text.where, text.format, fmt::make_format_args(args...));
}

/// A value, or an error in its place.
template <typename T>
using Result = tl::expected<T, Error>;

/// Success without a value, or an error.
using Status = Result<void>;

/// Makes the failed state of any Result: `return fail(Errc::io_error, "{}: ...", path);`
template <typename... Args>
[[nodiscard]] tl::unexpected<Error> fail(Errc code,
                                         LocatedFormat<std::type_identity_t<Args>...> text,
                                         Args&&... args) noexcept {
  return tl::unexpected(make_error<Args...>(code, text, std::forward<Args>(args)...));
}

}  // namespace terrace

/// Leaves the function with the error if `expression` (a Status or Result) failed.
#define TERRACE_TRY(expression)                                           \
  do {                                                                    \
    if (auto terrace_status = (expression); !terrace_status) [[unlikely]] \
      return ::tl::unexpected(std::move(terrace_status).error());         \
  } while (false)

#define TERRACE_CONCAT_INNER(a, b) a##b
#define TERRACE_CONCAT(a, b) TERRACE_CONCAT_INNER(a, b)

/// Declares `target` as the value of `expression`, or leaves the function with its error.
#define TERRACE_ASSIGN(target, expression)                                      \
  auto TERRACE_CONCAT(terrace_result_, __LINE__) = (expression);                \
  if (!TERRACE_CONCAT(terrace_result_, __LINE__)) [[unlikely]]                  \
    return ::tl::unexpected(TERRACE_CONCAT(terrace_result_, __LINE__).error()); \
  target = std::move(*TERRACE_CONCAT(terrace_result_, __LINE__))
