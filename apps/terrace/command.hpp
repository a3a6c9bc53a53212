// The common part of all commands: options, the config they resolve, and how one is called.
//
//   auto options = std::make_shared<SharedOptions>();
//   add_shared_options(*command, *options);
//   ...parse...
//   TERRACE_ASSIGN(const Settings settings, resolve_settings(*options));
#pragma once

#include <CLI/App.hpp>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "terrace/core/config.hpp"
#include "terrace/core/replace_file.hpp"
#include "terrace/core/result.hpp"
#include "terrace/runtime/cache_options.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace::apps {

/// A flag that is short for a config key.
struct KeyFlag {
  const char* flag;
  const char* key;
  const char* meaning;
};

/// A config value as a flag gave it.
struct FlagValue {
  std::string flag;
  std::string key;
  std::string text;
};

struct SharedOptions {
  std::string format = "text";
  std::string config_file;
  std::vector<std::string> assignments;  ///< of --set
  std::vector<FlagValue> flag_values;
  bool quiet = false;
  bool verbose = false;
  bool all = false;     ///< of `config explain`: keys that have their defaults, too
  bool strict = false;  ///< a variable that sets nothing is an error, not a warning

  [[nodiscard]] bool json() const noexcept { return format == "json"; }
};

/// The action that the command line asks for; filled while the line is parsed.
struct Invocation {
  std::function<Result<int>()> action;  ///< returns the exit status
  bool verbose = false;
};

/// Adds --format, --config, --set, --seed, -q and -v.
void add_shared_options(CLI::App& command, SharedOptions& options);

/// Makes empty names of files and folders wrong usage, in all commands below, too: an empty name
/// would count as no name, and nothing would be written. Such options have the value name FILE or
/// DIR.
void refuse_empty_file_names(CLI::App& command);

/// Adds a flag for each row.
void add_key_flags(CLI::App& command, std::span<const KeyFlag> flags, SharedOptions& options);

/// A config and the machine profile that it names.
struct Settings {
  Config config;
  /// The result of read_profile(), called once: its file may be a pipe. Only callers that need the
  /// profile report its error.
  Result<std::optional<MachineProfile>> profile;
};

/// Resolves defaults, file, environment, --set and the flags, the latter two strongest, and makes
/// the kernels use the instruction set that the config or this CPU's profile names.
/// Errors: those of load_config and Config::set, naming the flag; of use_isa.
Result<Settings> resolve_settings(const SharedOptions& options);

/// As resolve_settings(), for callers that need no profile.
Result<Config> resolve_config(const SharedOptions& options);

/// Returns the names in a list with commas between, without the blanks around them; `what` was
/// given the list. Errors: invalid_argument: no name at all, or an empty one.
Result<std::vector<std::string>> split_names(std::string_view what, const std::string& list);

/// Returns the files that any command reads: its config, and the profile that this names.
std::vector<NamedFile> config_sources(const SharedOptions& options, const Config& config);

/// Returns the files in a model's folder, all of them: weights may be in many, and tools read more
/// than this program does. Empty if no folder is named.
std::vector<NamedFile> model_sources(const std::filesystem::path& folder);

/// If a cache has no slot, says so on standard error and says what to change. Returns whether the
/// cache has no slot. A policy that selects nothing needs no cache, and is not warned about.
bool warn_of_no_cache(const CacheOptions& cache, const CacheSharing& sharing, bool quiet);

/// Adds a flag that takes how many there are of something.
CLI::Option* add_count(CLI::App& command, const char* flag, std::size_t& count,
                       const char* meaning);

/// Errors: invalid_argument naming the flag: none, or more than `most`.
Status check_count(std::string_view flag, std::size_t count, std::size_t most);

/// Adds the flag of commands that compute with a model.
void add_model_option(CLI::App& command, std::string& model);

/// True where something else than a default gave the key its value.
bool is_set(const Config& config, std::string_view key);

/// The flag of commands that read a machine profile.
inline constexpr KeyFlag profile_flag{"--profile", "profile", "machine profile: file or preset"};

/// True if the config's profile is a preset, which no file has as its name.
bool names_preset(const Config& config);

/// Reads the profile that the config names, if it names one: a file, or a preset.
/// Errors: those of MachineProfile::read; invalid_argument: neither, with the presets there are.
Result<std::optional<MachineProfile>> read_profile(const Config& config);

void add_run_command(CLI::App& program, Invocation& invocation);
void add_bench_command(CLI::App& program, Invocation& invocation);
void add_trace_command(CLI::App& program, Invocation& invocation);
void add_size_command(CLI::App& program, Invocation& invocation);
void add_tune_command(CLI::App& program, Invocation& invocation);
void add_calibrate_command(CLI::App& program, Invocation& invocation);
void add_config_command(CLI::App& program, Invocation& invocation);
void add_doctor_command(CLI::App& program, Invocation& invocation);
void add_stats_command(CLI::App& program, Invocation& invocation);

}  // namespace terrace::apps
