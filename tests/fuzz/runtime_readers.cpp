#include "fuzz/readers.hpp"
#include "fuzz/yaml_reference.hpp"
#include "terrace/runtime/config.hpp"
#include "terrace/runtime/machine_profile.hpp"

namespace terrace {
namespace {

std::string yaml_flaw(std::string_view text) {
  const std::string error = yaml_error(text);
  return error.empty() ? "" : "libyaml refuses it: " + error;
}

/// Why a config is not what its own text says; empty where it is.
std::string config_flaw(std::string_view text) {
  if (const std::string flaw = yaml_flaw(text); !flaw.empty()) return flaw;
  Config config;
  Config again;
  const Status read = apply_config_text(config, text, "x");
  const Status read_again = apply_config_text(again, write_config(config), "written");
  if (!read || !read_again) return "what is written of it is refused";
  for (const ConfigKey& key : config_keys()) {
    if (config.text(key.name) != again.text(key.name)) {
      return "what is written of it says otherwise of " + std::string(key.name);
    }
  }
  return {};
}

std::string profile_flaw(std::string_view text) {
  if (const std::string flaw = yaml_flaw(text); !flaw.empty()) return flaw;
  const auto profile = MachineProfile::parse(text, "x");
  const std::string written = profile->to_yaml();
  const auto again = MachineProfile::parse(written, "written");
  if (!again) return "what is written of it is refused: " + std::string(again.error().message());
  return again->to_yaml() == written ? "" : "what is written of it says otherwise";
}

}  // namespace

FuzzedReader config_yaml_reader() {
  const Corpus corpus = read_corpus("config_yaml");
  const auto read = [](std::string_view text) {
    const ExactCopy copy(text);
    Config config;
    return apply_config_text(config, copy.text(), "x");
  };
  return {{"config_yaml", [corpus](Rng& rng) { return mutate(corpus, rng); }, read, config_flaw},
          corpus};
}

FuzzedReader machine_profile_reader() {
  const Corpus corpus = read_corpus("machine_profile");
  const auto read = [](std::string_view text) {
    const ExactCopy copy(text);
    return status_of(MachineProfile::parse(copy.text(), "x"));
  };
  return {
      {"machine_profile", [corpus](Rng& rng) { return mutate(corpus, rng); }, read, profile_flaw},
      corpus};
}

}  // namespace terrace
