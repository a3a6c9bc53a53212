// Looks a row up by name; for a name that is in no row, says which is near and which there are.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/nearest_name.hpp"
#include "terrace/core/result.hpp"

namespace terrace::policies {

/// Errors: invalid_argument naming the setting, the unknown name, the nearest one and all others.
template <typename Entry>
Result<const Entry*> find_by_name(std::span<const Entry> table, std::string_view setting,
                                  std::string_view name) {
  std::string known;
  std::vector<std::string_view> names;
  for (const Entry& entry : table) {
    if (entry.name == name) return &entry;
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
    names.push_back(entry.name);
  }
  const std::string_view nearest = nearest_name(name, names);
  const std::string hint = nearest.empty() ? "" : "; did you mean " + std::string(nearest) + "?";
  return fail(Errc::invalid_argument, "{}: unknown policy '{}'{} (known are {})", setting, name,
              hint, known);
}

}  // namespace terrace::policies
