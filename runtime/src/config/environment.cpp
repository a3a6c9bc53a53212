#include <unistd.h>

#include <algorithm>
#include <array>

#include "terrace/runtime/config.hpp"

namespace terrace {
namespace {

constexpr std::string_view prefix = "TERRACE_";

/// Variables of Terrace that set no key of the config tree.
constexpr std::string_view file_variable = "TERRACE_CONFIG_FILE";  // which file to read
constexpr std::array<std::string_view, 4> other_variables{
    file_variable,
    "TERRACE_FUZZ_STEPS",       // length of the fuzz tests
    "TERRACE_REQUIRE_GPU",      // GPU tests fail instead of being skipped
    "TERRACE_VLLM_MIN_TOKENS",  // the vLLM plugin's
};
/// The vLLM plugin's file, which the program does not read.
constexpr std::string_view plugin_variable = "TERRACE_CONFIG";
/// Its other settings, which it checks itself.
constexpr std::string_view plugin_prefix = "TERRACE_VLLM_";

const ConfigKey* key_of_variable(std::string_view variable) {
  const auto keys = config_keys();
  const auto found = std::ranges::find_if(
      keys, [&](const ConfigKey& key) { return environment_name(key.name) == variable; });
  return found == keys.end() ? nullptr : &*found;
}

/// True for the variables that Kubernetes gives every container for a service, and Docker for a
/// link: TERRACE_SERVICE_HOST, TERRACE_PORT=tcp://10.0.0.1:80, TERRACE_PORT_80_TCP_ADDR.
bool names_service(const EnvironmentVariable& variable) {
  const std::string_view name = variable.name;
  if (name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT")) return true;
  if (name.find("_SERVICE_PORT_") != std::string_view::npos) return true;
  if (name.ends_with("_PORT")) return variable.value.find("://") != std::string_view::npos;
  const auto port = name.find("_PORT_");
  if (port == std::string_view::npos) return false;
  const std::string_view number = name.substr(port + std::string_view("_PORT_").size());
  const auto digits = number.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return false;
  return std::ranges::any_of(std::array{"_TCP", "_UDP", "_SCTP"}, [&](const char* protocol) {
    return number.substr(digits).starts_with(protocol);
  });
}

/// True where the variable is neither a key's nor known for another reason.
bool is_unknown(const EnvironmentVariable& variable) {
  return variable.name.starts_with(prefix) &&
         std::ranges::find(other_variables, variable.name) == other_variables.end() &&
         key_of_variable(variable.name) == nullptr && !names_service(variable);
}

/// Returns the key that the variable was probably meant for, or nothing.
std::string_view nearest_key(std::string_view variable) {
  std::string as_key(variable.substr(prefix.size()));
  for (char& c : as_key) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  // Edit distance sees each '_' that stands for a dot as one slip, so near names stay near.
  return nearest_config_key(as_key);
}

/// True where a key's name is so near that the variable is a slip, and hardly another program's.
bool is_slip(const EnvironmentVariable& variable) {
  constexpr std::size_t word_characters_min = 4;  // any two shorter ones are near: IP and ISA
  return is_unknown(variable) && variable.name != plugin_variable &&
         !variable.name.starts_with(plugin_prefix) &&
         variable.name.size() >= prefix.size() + word_characters_min &&
         !nearest_key(variable.name).empty();
}

std::string describe_unknown(std::string_view variable) {
  if (variable == plugin_variable) {
    return fmt::format("{}: read by the vLLM plugin alone; name the program's file in {}", variable,
                       file_variable);
  }
  const std::string_view nearest = nearest_key(variable);
  if (nearest.empty()) {
    return fmt::format(
        "{}: no key has this variable; unset it (`terrace config explain` lists the keys)",
        shown(variable));
  }
  return fmt::format("{}: no key has this variable; did you mean {}?", shown(variable),
                     environment_name(nearest));
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
    const ConfigKey* const key = key_of_variable(variable.name);
    if (key == nullptr) continue;  // refuse_slips() and unknown_variables() look at it
    TERRACE_TRY(
        config.set(key->name, variable.value,
                   {.origin = ConfigOrigin::environment, .place = std::string(variable.name)}));
  }
  return {};
}

Status refuse_slips(std::span<const EnvironmentVariable> environment) {
  const auto slip = std::ranges::find_if(environment, is_slip);
  if (slip == environment.end()) return {};
  return fail(Errc::invalid_argument, "{}", describe_unknown(slip->name));
}

std::vector<std::string> unknown_variables(std::span<const EnvironmentVariable> environment) {
  const bool has_file = std::ranges::find(environment, file_variable, &EnvironmentVariable::name) !=
                        environment.end();
  std::vector<std::string> lines;
  for (const EnvironmentVariable& variable : environment) {
    // A user who sets both variables knows which file each one names.
    if (!is_unknown(variable) || (has_file && variable.name == plugin_variable)) continue;
    lines.push_back(describe_unknown(variable.name));
  }
  return lines;
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
