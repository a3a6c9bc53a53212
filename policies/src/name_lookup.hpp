// Looks a row up by name, and names all rows when there is none of that name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace::policies {

/// Errors: invalid_argument naming the setting, the unknown name and the known ones.
template <typename Entry>
Result<const Entry*> find_by_name(std::span<const Entry> table, std::string_view setting,
                                  std::string_view name) {
  std::string known;
  for (const Entry& entry : table) {
    if (entry.name == name) return &entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  return fail(Errc::invalid_argument, "{}: unknown policy '{}'; known are {}", setting, name,
              known);
}

}  // namespace terrace::policies
