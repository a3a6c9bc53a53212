#include <unistd.h>

#include <algorithm>
#include <array>

#include "terrace/runtime/config.hpp"

namespace terrace {
namespace {

constexpr std::string_view prefix = "TERRACE_";

/// Variables of Terrace that set no key of the config tree.
constexpr std::array<std::string_view, 3> other_variables{
    "TERRACE_CONFIG_FILE",  // which file to read
    "TERRACE_FUZZ_STEPS",   // length of the fuzz tests
    "TERRACE_REQUIRE_GPU",  // GPU tests fail instead of being skipped
};

const ConfigKey* key_of_variable(std::string_view variable) {
  const auto keys = config_keys();
  const auto found = std::ranges::find_if(
      keys, [&](const ConfigKey& key) { return environment_name(key.name) == variable; });
  return found == keys.end() ? nullptr : &*found;
}

Error unknown_variable(std::string_view variable) {
  std::string as_key(variable.substr(prefix.size()));
  for (char& c : as_key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  // Edit distance sees each '_' that stands for a dot as one slip, so near names stay near.
  const std::string_view nearest = nearest_config_key(as_key);
  if (nearest.empty()) {
    return make_error(
        Errc::invalid_argument,
        "{}: no key has this variable; unset it (`terrace config explain` lists them)",
        shown(variable));
  }
  return make_error(Errc::invalid_argument, "{}: no key has this variable; did you mean {}?",
                    shown(variable), environment_name(nearest));
}

}  // namespace

std::string environment_name(std::string_view key) {
  std::string name(prefix);
  for (const char c : key) {
    name += c == '.' ? '_' : (c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c);
  }
  return name;
}

Status apply_environment(Config& config, std::span<const EnvironmentVariable> environment) {
  for (const EnvironmentVariable& variable : environment) {
    if (!variable.name.starts_with(prefix)) continue;
    if (std::ranges::find(other_variables, variable.name) != other_variables.end()) continue;
    const ConfigKey* key = key_of_variable(variable.name);
    if (key == nullptr) return tl::unexpected(unknown_variable(variable.name));
    TERRACE_TRY(
        config.set(key->name, variable.value,
                   {.origin = ConfigOrigin::environment, .place = std::string(variable.name)}));
  }
  return {};
}

std::vector<EnvironmentVariable> process_environment() {
  std::vector<EnvironmentVariable> variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    variables.push_back({.name = text.substr(0, equals), .value = text.substr(equals + 1)});
  }
  return variables;
}

}  // namespace terrace
