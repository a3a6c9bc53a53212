#include "command.hpp"

#include <fmt/core.h>

#include <CLI/Validators.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "machine.hpp"
#include "output.hpp"
#include "terrace/core/list_folder.hpp"
#include "terrace/kernels/isa.hpp"
#include "terrace/runtime/config.hpp"
#include "terrace/tuning/costs.hpp"

namespace terrace::apps {
namespace {

/// Makes kernels use the named instruction level. If none is named, they use the level with which
/// this CPU's profile was measured. The CPU may offer fewer instructions than it did then: a kernel
/// or a container may hide AMX.
Status use_named_isa(const Settings& settings, bool quiet) {
  const Config& config = settings.config;
  const auto& profile = settings.profile;
  const bool measured_here = profile && *profile && !names_preset(config) &&
                             (*profile)->cpu == cpu_name() && !(*profile)->isa.empty();
  if (!config.is("isa", "auto") || !measured_here) {
    return kernels::host::use_isa(config.text("isa"));
  }
  const Status used = kernels::host::use_isa((*profile)->isa);
  if (used) return {};
  if (!quiet) {
    warn("the profile's isa is ignored: {}", used.error().message());
  }
  return kernels::host::use_isa("auto");
}

/// Prints the values that are not defaults, and their origins.
void tell_settings(const Config& config) {
  for (const ConfigKey& key : config_keys()) {
    if (!is_set(config, key.name)) continue;
    say("{} = {} ({})", key.name, config.visible_text(key.name), config.source(key.name).place);
  }
  say("kernels use {}", kernels::host::isa_in_use());
}

/// Warns of variables that set nothing, or refuses the first of them.
Status tell_unknown(const std::vector<std::string>& variables, const SharedOptions& options) {
  for (const std::string& line : variables) {
    if (options.strict) return fail(Errc::invalid_argument, "{}", line);
    if (!options.quiet) warn("{}", line);
  }
  return {};
}

}  // namespace

void add_shared_options(CLI::App& command, SharedOptions& options) {
  command.add_option("--format", options.format, "how results are written: text or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->option_text("text|json");
  command.add_option("--config", options.config_file, "read config keys from a YAML file")
      ->option_text("FILE");
  command.add_option("--set", options.assignments, "set a config key; may be given many times")
      ->allow_extra_args(false)
      ->option_text("KEY=VALUE");
  command.add_flag("-q,--quiet", options.quiet, "neither progress nor warnings");
  command.add_flag("-v,--verbose", options.verbose, "say more, on standard error");
  constexpr KeyFlag seed{"--seed", "seed", "names every random stream"};
  add_key_flags(command, {&seed, 1}, options);
}

void refuse_empty_file_names(CLI::App& command) {
  const auto check = [](const std::string& name) {
    return name.empty() ? std::string("the name of a file is empty") : std::string();
  };
  for (CLI::Option* const option : command.get_options()) {
    const std::string& value = option->get_option_text();
    const bool takes_file = value.starts_with("FILE") || value == "DIR" || option->get_positional();
    if (takes_file) option->check(check);
  }
  for (CLI::App* const below : command.get_subcommands([](const CLI::App*) { return true; })) {
    refuse_empty_file_names(*below);
  }
}

void add_key_flags(CLI::App& command, std::span<const KeyFlag> flags, SharedOptions& options) {
  for (const KeyFlag& row : flags) {
    const auto keep = [&options, row](const std::string& text) {
      options.flag_values.push_back({row.flag, row.key, text});
    };
    command.add_option_function<std::string>(row.flag, keep, row.meaning)->option_text("VALUE");
  }
}

CLI::Option* add_count(CLI::App& command, const char* flag, std::size_t& count,
                       const char* meaning) {
  const auto check = [](const std::string& text) {
    const bool whole = !text.empty() && std::ranges::all_of(text, [](unsigned char character) {
      return std::isdigit(character) != 0;
    });
    return whole ? std::string() : fmt::format("'{}' is no whole number from 0 on", text);
  };
  return command.add_option(flag, count, meaning)->check(check)->option_text("N");
}

Status check_count(std::string_view flag, std::size_t count, std::size_t most) {
  if (count > 0 && count <= most) return {};
  return fail(Errc::invalid_argument, "{} {}: give 1 to {}", flag, count, most);
}

void add_model_option(CLI::App& command, std::string& model) {
  command
      .add_option("--model", model,
                  "folder with config.json and model.safetensors [the bundled model]")
      ->option_text("DIR");
}

Result<Settings> resolve_settings(const SharedOptions& options) {
  const auto environment = process_environment();
  TERRACE_TRY(tell_unknown(unknown_variables(environment), options));
  TERRACE_ASSIGN(Config config, load_config({.file = options.config_file,
                                             .environment = environment,
                                             .flags = options.assignments}));
  for (const FlagValue& flag : options.flag_values) {
    TERRACE_TRY(config.set(flag.key, flag.text, {ConfigOrigin::flag, flag.flag}));
  }
  TERRACE_TRY(config.validate());
  auto profile = read_profile(config);
  Settings settings{.config = std::move(config), .profile = std::move(profile)};
  // Here, because every command passes here before a kernel runs.
  TERRACE_TRY(use_named_isa(settings, options.quiet));
  if (options.verbose) tell_settings(settings.config);
  return settings;
}

Result<Config> resolve_config(const SharedOptions& options) {
  TERRACE_ASSIGN(Settings settings, resolve_settings(options));
  return std::move(settings.config);
}

Result<std::vector<std::string>> split_names(std::string_view what, const std::string& list) {
  constexpr const char* blanks = " \t";
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    name.erase(0, name.find_first_not_of(blanks));
    name.erase(name.find_last_not_of(blanks) + 1);
    if (name.empty()) {
      return fail(Errc::invalid_argument, "{}: '{}' has an empty name in it", what, list);
    }
    names.push_back(std::move(name));
  }
  if (names.empty()) return fail(Errc::invalid_argument, "{}: names no policy", what);
  return names;
}

std::vector<NamedFile> config_sources(const SharedOptions& options, const Config& config) {
  std::vector<NamedFile> sources{{"--config", options.config_file}};
  for (const EnvironmentVariable& variable : process_environment()) {
    if (variable.name == "TERRACE_CONFIG_FILE") {
      sources.push_back({variable.name, std::string(variable.value)});
    }
  }
  if (!names_preset(config)) sources.push_back({"--profile", config.text("profile")});
  return sources;
}

std::vector<NamedFile> model_sources(const std::filesystem::path& folder) {
  std::vector<NamedFile> sources;
  const auto files = list_folder(folder);
  if (!files) return sources;  // its reader will say so
  for (const std::filesystem::path& file : *files) {
    sources.push_back({"a file in the model's folder", file});
  }
  return sources;
}

bool warn_of_no_cache(const CacheOptions& cache, const CacheSharing& sharing, bool quiet) {
  auto reason = why_no_slot(cache, sharing);
  const bool has_default = !cache.none() && cache.tokens == 0 && sharing.selected_tokens > 0;
  if (!reason && has_default && cache_slots(cache, sharing) == 0) {
    reason = fmt::format(
        "the cache's default size, twice the {} tokens that a step selects, holds no "
        "{} of {} tokens: no cache; give --cache-tokens",
        sharing.selected_tokens,
        cache.granularity == CacheGranularity::cluster ? "slot of clusters" : "block",
        sharing.slot_tokens);
  }
  if (reason && !quiet) warn("{}", *reason);
  return reason.has_value();
}

bool is_set(const Config& config, std::string_view key) {
  return config.source(key).origin != ConfigOrigin::default_value;
}

bool names_preset(const Config& config) {
  const std::string& name = config.text("profile");
  std::error_code ignored;
  return !name.empty() && !std::filesystem::exists(name, ignored);
}

Result<std::optional<MachineProfile>> read_profile(const Config& config) {
  const std::string& name = config.text("profile");
  if (name.empty()) return std::nullopt;
  if (!names_preset(config)) return MachineProfile::read(name);
  return tuning::find_cost_preset(name).map(tuning::preset_profile);
}

}  // namespace terrace::apps
