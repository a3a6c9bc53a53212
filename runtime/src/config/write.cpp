#include "terrace/runtime/config.hpp"

namespace terrace {
namespace {

/// Quotes a value unless it is plain to every YAML reader.
std::string yaml_scalar(const ConfigKey& key, const std::string& text) {
  if (key.kind != ConfigKind::text) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

std::string write_config(const Config& config) {
  std::string yaml;
  std::string_view group_before;
  for (const ConfigKey& key : config_keys()) {
    const auto dot = key.name.find('.');
    const bool is_grouped = dot != std::string_view::npos;
    const std::string_view group = is_grouped ? key.name.substr(0, dot) : std::string_view{};
    if (is_grouped && group != group_before) yaml += fmt::format("{}:\n", group);
    group_before = group;
    yaml += fmt::format("{}{}: {}\n", is_grouped ? "  " : "",
                        is_grouped ? key.name.substr(dot + 1) : key.name,
                        yaml_scalar(key, config.text(key.name)));
  }
  return yaml;
}

}  // namespace terrace
