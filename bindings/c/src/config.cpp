#include "terrace/runtime/config.hpp"

#include "handles.hpp"
#include "json.hpp"

using namespace terrace;
using bindings::check_given;
using bindings::guarded;

terrace_status terrace_config_create(terrace_config** config) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(config, "terrace_config_create", "config"));
    *config = nullptr;
    *config = new terrace_config();
    return {};
  });
}

void terrace_config_close(terrace_config* config) { delete config; }

terrace_status terrace_config_load(terrace_config* config, const char* path) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(config, "terrace_config_load", "config"));
    TERRACE_TRY(check_given(path, "terrace_config_load", "path"));
    return apply_config_file(config->config, path);
  });
}

terrace_status terrace_config_parse(terrace_config* config, const char* text, const char* name) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(config, "terrace_config_parse", "config"));
    TERRACE_TRY(check_given(text, "terrace_config_parse", "text"));
    TERRACE_TRY(check_given(name, "terrace_config_parse", "name"));
    return apply_config_text(config->config, text, name);
  });
}

terrace_status terrace_config_load_environment(terrace_config* config) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(config, "terrace_config_load_environment", "config"));
    const std::vector<EnvironmentVariable> environment = process_environment();
    TERRACE_TRY(refuse_slips(environment));
    return apply_environment(config->config, environment);
  });
}

terrace_status terrace_config_set(terrace_config* config, const char* key, const char* value) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(config, "terrace_config_set", "config"));
    TERRACE_TRY(check_given(key, "terrace_config_set", "key"));
    TERRACE_TRY(check_given(value, "terrace_config_set", "value"));
    return config->config.set(key, value, {ConfigOrigin::flag, "terrace_config_set"});
  });
}

terrace_status terrace_config_get(const terrace_config* config, const char* key,
                                  const char** value) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(value, "terrace_config_get", "value"));
    *value = nullptr;
    TERRACE_TRY(check_given(config, "terrace_config_get", "config"));
    TERRACE_TRY(check_given(key, "terrace_config_get", "key"));
    if (find_config_key(key) == nullptr) {
      return tl::unexpected(unknown_config_key(key, "terrace_config_get"));
    }
    *value = config->config.text(key).c_str();
    return {};
  });
}

terrace_status terrace_config_keys(terrace_config* config, const char** json) {
  return guarded([&]() -> Status {
    TERRACE_TRY(check_given(json, "terrace_config_keys", "json"));
    *json = nullptr;
    TERRACE_TRY(check_given(config, "terrace_config_keys", "config"));
    config->keys = bindings::keys_as_json(config->config);
    *json = config->keys.c_str();
    return {};
  });
}
