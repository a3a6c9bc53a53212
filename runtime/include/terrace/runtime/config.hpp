// Reading the config tree from a YAML file, the environment and flags.
//
//   const auto environment = process_environment();
//   TERRACE_ASSIGN(const Config config, load_config({.file = path, .environment = environment,
//                                                    .flags = {"cache.policy=lfu"}}));
//
// A flag beats the environment, which beats the file, which beats the default. The keys themselves
// are core's (terrace/core/config.hpp). In a file, `cache: {policy: lfu}` and `cache.policy: lfu`
// mean the same; the variable of that key is TERRACE_CACHE_POLICY.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

/// One variable. The text must outlive the call it is passed to.
struct EnvironmentVariable {
  std::string_view name = {};
  std::string_view value = {};
};

/// Everything a config is read from.
struct ConfigInputs {
  std::string file = {};  ///< path; empty: the one that TERRACE_CONFIG_FILE names, else none
  std::span<const EnvironmentVariable> environment = {};
  std::vector<std::string> flags = {};  ///< KEY=VALUE each; of two for one key the later wins
};

/// A larger file is refused: it is not a config.
inline constexpr std::size_t config_file_bytes_max = std::size_t{256} << 10;

/// Reads all inputs and checks the result as a whole.
///
/// Errors   as apply_config_file, apply_environment, apply_flag and Config::validate
[[nodiscard]] Result<Config> load_config(const ConfigInputs& inputs);

/// Reads a YAML file into `config`.
///
/// Errors   io_error: the file cannot be read; invalid_argument: as apply_config_text, or too large
[[nodiscard]] Status apply_config_file(Config& config, const std::string& path);

/// Reads YAML text into `config`; `name` stands for it in messages and sources.
///
/// Limits   one document, a map of maps of scalars without tags, anchors, aliases and directives
///          (decision 0070); an empty text sets nothing
/// Errors   invalid_argument, starting with name:line: no YAML, no UTF-8, a list, a key given
/// twice, a key
///          without value, unknown key, value not accepted. Keys before the error are set
[[nodiscard]] Status apply_config_text(Config& config, std::string_view yaml,
                                       std::string_view name);

/// Reads the variables that name a key into `config` and ignores all other variables: a platform
/// may set variables that begin with TERRACE_, too.
///
/// Errors   invalid_argument: a value that is not accepted
[[nodiscard]] Status apply_environment(Config& config,
                                       std::span<const EnvironmentVariable> environment);

/// Refuses the first variable that begins with TERRACE_ and sets nothing, where a key has nearly
/// that name: a slip, such as TERRACE_CACHE_POLCY. Other variables are ignored, such as those of
/// the vLLM plugin and of a service that Kubernetes calls terrace. For embedders without a place
/// for warnings.
///
/// Errors   invalid_argument: names the variable and the nearest that a key has
[[nodiscard]] Status refuse_slips(std::span<const EnvironmentVariable> environment);

/// Returns a line for each variable that begins with TERRACE_ and sets nothing: mostly a slip.
/// Variables that Kubernetes sets for a service of that name are ignored.
[[nodiscard]] std::vector<std::string> unknown_variables(
    std::span<const EnvironmentVariable> environment);

/// Reads one KEY=VALUE into `config`, as given to --set.
[[nodiscard]] Status apply_flag(Config& config, std::string_view assignment);

/// Returns the variable of a key: "TERRACE_CACHE_POLICY" for "cache.policy".
[[nodiscard]] std::string environment_name(std::string_view key);

/// Returns the process's variables. They stay valid until the environment is changed.
[[nodiscard]] std::vector<EnvironmentVariable> process_environment();

/// Returns all values as YAML text that apply_config_text reads back to the same values.
[[nodiscard]] std::string write_config(const Config& config);

}  // namespace terrace
