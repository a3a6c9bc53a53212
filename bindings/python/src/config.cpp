#include <nanobind/stl/string.h>

#include "objects.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace terrace::python {
namespace {

/// Writes the value of a key as the command line would have it.
std::string text_of(const std::string& key, nb::handle value) {
  if (nb::isinstance<nb::bool_>(value)) return nb::cast<bool>(value) ? "true" : "false";
  return read_text(key, {nb::str(value)});
}

Config make_config() {
  terrace_config* made = nullptr;
  raise_failure(failure_of(terrace_config_create(&made)));
  return {hold<ConfigHandle>("the config", made)};
}

void set_key(Config& config, const std::string& key, nb::handle value) {
  const std::string text = text_of(key, value);
  config.handle->use(
      [&](terrace_config* c) { return terrace_config_set(c, key.c_str(), text.c_str()); });
}

void set(Config& config, GivenText key, GivenObject value) {
  set_key(config, read_text("key", key), value.object);
}

std::string get(Config& config, GivenText given) {
  const std::string key = read_text("key", given);
  std::string value;
  config.handle->use([&](terrace_config* c) {
    const char* text = nullptr;
    const terrace_status status = terrace_config_get(c, key.c_str(), &text);
    if (status == TERRACE_OK) value = text;
    return status;
  });
  return value;
}

void set_all(Config& config, const nb::object& settings) {
  if (!nb::hasattr(settings, "items")) {
    raise_invalid("config is of type " +
                  nb::cast<std::string>(nb::str(nb::type_name(settings.type()))) +
                  ": give a mapping of keys to values, or a Config, which reads files");
  }
  for (nb::handle item : settings.attr("items")()) {
    const nb::object key = item[0];
    set_key(config, read_text("a key of config", {key}), item[1]);
  }
}

nb::object describe(Config& config) { return json_of(*config.handle, &terrace_config_keys); }

}  // namespace

Config config_of(const nb::object& given) {
  if (nb::isinstance<Config>(given)) return read_object<Config>("config", given, "a Config");
  Config config = make_config();
  if (!given.is_none()) set_all(config, given);
  return config;
}

void add_config(nb::module_& module) {
  nb::class_<Config>(module, "Config", R"(Settings: the keys of the command line.

Settings from the constructor or `set` win over the environment, which wins over files, in any
order of calls. A runtime copies its settings.)")
      .def(
          "__init__",
          [](Config* self, const nb::object& settings) {
            Config config = make_config();
            if (!settings.is_none()) set_all(config, settings);
            new (self) Config(std::move(config));
          },
          "settings"_a = nb::none(),
          nb::sig(
              "def __init__(self, settings: collections.abc.Mapping[str, object] | None = None) "
              "-> None"),
          R"(Makes settings that are at their defaults, but for those given:
{"retrieval.budget": 0.1}.

Raises InvalidArgument for an unknown key, and names the nearest one, or for a value that the key
does not accept.)")
      .def(
          "load",
          [](Config& config, GivenObject given) {
            const std::string path = read_path("path", given);
            config.handle->use(
                [&](terrace_config* c) { return terrace_config_load(c, path.c_str()); });
          },
          "path"_a, nb::sig("def load(self, path: str | os.PathLike[str]) -> None"),
          R"(Reads a file of YAML or JSON, as `terrace tune --write-config` writes it.

Raises StoreError if the file cannot be read, InvalidArgument with file, line and the fault: keys
before it are set.)")
      .def(
          "parse",
          [](Config& config, GivenText given_text, GivenText given_name) {
            const std::string text = read_text("text", given_text);
            const std::string name = read_text("name", given_name);
            config.handle->use([&](terrace_config* c) {
              return terrace_config_parse(c, text.c_str(), name.c_str());
            });
          },
          "text"_a, "name"_a = "text",
          nb::sig("def parse(self, text: str, name: str = 'text') -> None"),
          "Reads settings from a text; messages call it `name`.")
      .def(
          "load_environment",
          [](Config& config) {
            config.handle->use(
                [](terrace_config* c) { return terrace_config_load_environment(c); });
          },
          R"(Reads the variables of the process, as TERRACE_CACHE_POLICY for cache.policy.

Raises InvalidArgument for a value that a key does not accept, or for a variable with nearly the
name of a key: TERRACE_CACHE_POLCY. Other variables are ignored.)")
      .def("__setitem__", &set, "key"_a, "value"_a,
           nb::sig("def __setitem__(self, key: str, value: object) -> None"),
           "Sets one key. Numbers and booleans are written as text.")
      .def("__getitem__", &get, "key"_a, nb::sig("def __getitem__(self, key: str) -> str"),
           "Returns the value in force, as text.")
      .def("describe", &describe, nb::sig("def describe(self) -> list[dict[str, str]]"),
           R"(Returns all keys: name, value, origin (default, file, environment, flag), place,
default, accepts and meaning of each.)");
}

}  // namespace terrace::python
