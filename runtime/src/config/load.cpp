#include <algorithm>

#include "terrace/runtime/config.hpp"

namespace terrace {
namespace {

std::string file_of(const ConfigInputs& inputs) {
  if (!inputs.file.empty()) return inputs.file;
  const auto named =
      std::ranges::find(inputs.environment, "TERRACE_CONFIG_FILE", &EnvironmentVariable::name);
  return named == inputs.environment.end() ? std::string{} : std::string(named->value);
}

}  // namespace

Result<Config> load_config(const ConfigInputs& inputs) {
  Config config;
  if (const std::string file = file_of(inputs); !file.empty()) {
    TERRACE_TRY(apply_config_file(config, file));
  }
  TERRACE_TRY(apply_environment(config, inputs.environment));
  for (const std::string& flag : inputs.flags) TERRACE_TRY(apply_flag(config, flag));
  TERRACE_TRY(config.validate());
  return config;
}

Status apply_flag(Config& config, std::string_view assignment) {
  const auto equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return fail(Errc::invalid_argument, "--set: '{}' has no '='; write KEY=VALUE",
                shown(assignment));
  }
  return config.set(assignment.substr(0, equals), assignment.substr(equals + 1),
                    {.origin = ConfigOrigin::flag, .place = "--set"});
}

}  // namespace terrace
