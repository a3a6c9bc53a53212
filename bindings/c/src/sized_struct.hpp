// Structs of callers that were compiled with an older, or a newer, terrace.h than this library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "terrace/core/result.hpp"

namespace terrace::bindings {

/// No version of a struct is larger. A size above it is memory that was never set.
inline constexpr std::size_t struct_bytes_max = 4096;

/// Errors: invalid_argument: less than `size_min`, which each version of the struct has, or no size
/// of such a struct at all.
[[nodiscard]] Status check_struct_size(std::size_t size, std::size_t size_min,
                                       std::string_view name);

/// Errors: unsupported: a newer program's fields, which this library does not know, say something.
[[nodiscard]] Status check_unknown_fields(const std::byte* fields, std::size_t bytes,
                                          std::string_view name);

/// Returns the caller's struct: fields that it does not have are those of `defaults`.
///
/// Errors   invalid_argument: NULL, or an impossible size; unsupported: fields of a newer version
///          that are not zero
template <typename T>
Result<T> read_struct(const T* given, T defaults, std::size_t size_min, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  if (given == nullptr) return fail(Errc::invalid_argument, "{} is NULL", name);
  const std::size_t size = given->size;
  TERRACE_TRY(check_struct_size(size, size_min, name));
  const std::size_t known = std::min(size, sizeof(T));
  TERRACE_TRY(
      check_unknown_fields(reinterpret_cast<const std::byte*>(given) + known, size - known, name));
  std::memcpy(&defaults, given, known);
  return defaults;
}

/// As read_struct, but NULL means the defaults.
template <typename T>
Result<T> read_optional_struct(const T* given, T defaults, std::string_view name) {
  if (given == nullptr) return defaults;
  return read_struct(given, defaults, sizeof(std::size_t), name);
}

/// Sets the fields that the caller's struct has. Fields of a newer version are zero.
/// Errors: invalid_argument: NULL, or an impossible size.
template <typename T>
Status write_struct(T* target, T value, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  if (target == nullptr) return fail(Errc::invalid_argument, "{} is NULL", name);
  const std::size_t size = target->size;
  TERRACE_TRY(check_struct_size(size, sizeof(std::size_t), name));
  const std::size_t known = std::min(size, sizeof(T));
  value.size = size;
  std::memcpy(target, &value, known);
  std::memset(reinterpret_cast<std::byte*>(target) + known, 0, size - known);
  return {};
}

}  // namespace terrace::bindings
