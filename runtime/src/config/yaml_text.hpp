// YAML that users wrote: config files and machine profiles.
#pragma once

#include <yaml-cpp/yaml.h>

#include <string>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace {

/// "NAME:LINE", without the line where YAML knows none.
std::string yaml_place(std::string_view name, const YAML::Mark& mark);

/// Returns the root of the one document in a text, null where there is none.
///
/// Errors   invalid_argument naming the line: characters that YAML does not have, no YAML, a second
///          document
Result<YAML::Node> read_yaml(std::string_view text, std::string_view name);

}  // namespace terrace
