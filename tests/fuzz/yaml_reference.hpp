// YAML as libyaml reads it, which Terrace does not use: a judge of readers.
#pragma once

#include <string>
#include <string_view>

namespace terrace {

/// Returns the error of libyaml for a text; empty where it reads the whole of it.
std::string yaml_error(std::string_view text);

}  // namespace terrace
