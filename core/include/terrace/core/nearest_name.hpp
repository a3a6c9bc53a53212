// Finds the known name that is nearest to a mistyped one.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "terrace/core/function_ref.hpp"

namespace terrace {

/// Returns Levenshtein's distance: letters to add, drop or replace.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// Returns the nearest of `names`, ignoring case, or an empty text if no name is near.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names);

/// The same by a distance of one's own, from `name` to each.
std::string_view nearest_name(std::string_view name, std::span<const std::string_view> names,
                              FunctionRef<std::size_t(std::string_view)> distance_to);

}  // namespace terrace
