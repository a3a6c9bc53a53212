// `terrace config validate` and `terrace config explain`.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <ranges>

#include "command.hpp"
#include "config_check.hpp"
#include "document.hpp"
#include "output.hpp"
#include "profile_report.hpp"

namespace terrace::apps {
namespace {

/// "file serve.yaml:3", "default".
std::string describe_source(const ConfigSource& source) {
  const std::string_view origin = to_string(source.origin);
  return source.place.empty() ? std::string(origin) : fmt::format("{} {}", origin, source.place);
}

Result<int> validate(const SharedOptions& options) {
  TERRACE_ASSIGN(const Settings settings, resolve_settings(options));
  const Config& config = settings.config;
  TERRACE_TRY(check_config(config));
  TERRACE_TRY(settings.profile);
  if (options.json()) {
    Json document = document_head("config validate", config, read_machine());
    document["valid"] = true;
    print_document(document);
  } else if (!options.quiet) {
    print_out("the config is valid\n");
  }
  return 0;
}

/// `width`: of the first column.
void print_row(std::size_t width, std::string_view key, std::string_view value,
               std::string_view origin, std::string_view meaning) {
  print_out("{:<{}} {:<12} {:<16} {}\n", key, width, value, origin, meaning);
}

/// The keys that most configs decide on.
constexpr auto main_keys = std::to_array<std::string_view>(
    {"retrieval.policy", "retrieval.budget", "retention.policy", "cache.policy", "placement",
     "backend", "device.memory", "host.memory", "tier.nvme.path", "tier.model", "daemon.socket",
     "threads.host"});

/// Prints the main keys and those that are set, or all.
void print_rows(const Config& config, bool all) {
  const auto is_shown = [&](const ConfigKey& key) {
    return all || config.source(key.name).origin != ConfigOrigin::default_value ||
           std::ranges::find(main_keys, key.name) != main_keys.end();
  };
  const auto names = std::views::transform(config_keys(), &ConfigKey::name);
  const std::size_t width = std::ranges::max(names, {}, &std::string_view::size).size();
  print_row(width, "key", "value", "set by", "meaning");
  std::size_t left_out = 0;
  for (const ConfigKey& key : config_keys()) {
    if (!is_shown(key)) {
      ++left_out;
      continue;
    }
    const std::string text = config.visible_text(key.name);
    const std::string_view value = text;
    print_row(width, key.name, value.empty() ? "''" : value,
              describe_source(config.source(key.name)), key.meaning);
  }
  if (left_out > 0) print_out("{} more keys have their defaults: --all shows them\n", left_out);
}

Json explain_rows(const Config& config) {
  const Json values = config_values(config);
  Json rows = Json::array();
  for (const ConfigKey& key : config_keys()) {
    const ConfigSource& source = config.source(key.name);
    rows.push_back({{"key", key.name},
                    {"value", values[std::string(key.name)]},
                    {"origin", to_string(source.origin)},
                    {"place", source.place.empty() ? Json(nullptr) : Json(source.place)},
                    {"accepts", describe_accepted(key)},
                    {"meaning", key.meaning}});
  }
  return rows;
}

Result<int> explain(const SharedOptions& options) {
  TERRACE_ASSIGN(const Settings settings, resolve_settings(options));
  TERRACE_ASSIGN(const auto profile, settings.profile);
  const Config& config = settings.config;
  if (profile) {
    for (const auto& [setting, costs] : profile->compute) {
      warn_of_loose_fits(setting, costs, options.quiet);
    }
  }
  if (options.json()) {
    Json document = document_head("config explain", config, read_machine());
    document["rows"] = explain_rows(config);
    document["profile"] = profile ? profile_object(*profile, config) : Json();
    print_document(document);
  } else {
    print_rows(config, options.all);
    if (profile) print_out("\n{}", profile_text(*profile, config));
  }
  return 0;
}

void add_action(CLI::App& config, const char* name, const char* meaning,
                Result<int> (*action)(const SharedOptions&), Invocation& invocation) {
  CLI::App* const command = config.add_subcommand(name, meaning);
  const auto options = std::make_shared<SharedOptions>();
  add_key_flags(*command, {&profile_flag, 1}, *options);
  add_shared_options(*command, *options);
  command->add_option("FILE", options->config_file, "as --config FILE")->excludes("--config");
  if (action == &explain) {
    command->add_flag("--all", options->all, "show the keys that have their defaults, too");
  }
  if (action == &validate) {
    command->add_flag("--strict", options->strict, "refuse variables TERRACE_* that set nothing");
  }
  command->callback([options, action, &invocation] {
    invocation = {[options, action] { return action(*options); }, options->verbose};
  });
}

}  // namespace

void add_config_command(CLI::App& program, Invocation& invocation) {
  CLI::App* const config = program.add_subcommand("config", "check or explain a configuration");
  config->require_subcommand(0, 1);
  add_action(*config, "validate", "check a configuration; exit 2 if it is wrong", &validate,
             invocation);
  add_action(*config, "explain",
             "print the main keys and those that are set: value, origin, meaning", &explain,
             invocation);
}

}  // namespace terrace::apps
