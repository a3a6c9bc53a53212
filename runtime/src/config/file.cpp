#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>

#include "terrace/runtime/config.hpp"
#include "yaml_text.hpp"

namespace terrace {
namespace {

/// Keeps the end of a long path, so that messages have room for what is wrong.
std::string shown_path(std::string_view path) {
  constexpr std::size_t characters_max = 60;
  if (path.size() <= characters_max) return std::string(path);
  return "..." + std::string(path.substr(path.size() - characters_max));
}

/// Walks a YAML tree and sets the keys it finds.
class Reader {
 public:
  Reader(Config& config, std::string_view name) : config_(config), name_(shown_path(name)) {}

  [[nodiscard]] std::string place(int line_from_0) const {
    return line_from_0 < 0 ? name_ : fmt::format("{}:{}", name_, line_from_0 + 1);
  }

  /// Sets everything below `node`, whose own dotted name is `prefix` (empty at the top).
  [[nodiscard]] Status read_map(const YAML::Node& node, const std::string& prefix) {
    for (const auto& entry : node) {
      const int line = entry.first.Mark().line;
      if (!entry.first.IsScalar()) {
        return fail(Errc::invalid_argument, "{}: this key is no word; write KEY: VALUE",
                    place(line));
      }
      const std::string& word = entry.first.Scalar();
      const std::string key = prefix.empty() ? word : fmt::format("{}.{}", prefix, word);
      TERRACE_TRY(read_entry(entry.second, key, line));
    }
    return {};
  }

 private:
  [[nodiscard]] Status read_entry(const YAML::Node& node, const std::string& key, int line) {
    const bool is_group = names_group(key);
    const ConfigKey* const found = find_config_key(key);
    if (!is_group && found == nullptr) {
      return tl::unexpected(unknown_config_key(key, place(line)));
    }
    const bool is_value = node.IsScalar() || (!is_group && is_kind_of_budget(*found, node));
    if (is_group ? !node.IsMap() : !is_value) {
      return fail(Errc::invalid_argument, "{}: {} needs {}{}", place(line), key,
                  is_group ? "keys below it, not a single value" : "one value",
                  node.IsNull() ? ", but has none" : "");
    }
    if (is_group) return read_map(node, key);
    const auto [earlier, is_first] = lines_.try_emplace(key, line);
    if (!is_first) {
      return fail(Errc::invalid_argument, "{}: {} was given already in line {}; keep one",
                  place(line), key, earlier->second + 1);
    }
    return config_.set(key, text_of(node), {.origin = ConfigOrigin::file, .place = place(line)});
  }

  /// True for {mass: 0.95}, which is the budget mass:0.95.
  static bool is_kind_of_budget(const ConfigKey& key, const YAML::Node& node) {
    return key.kind == ConfigKind::budget && node.IsMap() && node.size() == 1 &&
           node.begin()->first.IsScalar() && node.begin()->second.IsScalar();
  }

  static std::string text_of(const YAML::Node& node) {
    if (node.IsScalar()) return node.Scalar();
    return fmt::format("{}:{}", node.begin()->first.Scalar(), node.begin()->second.Scalar());
  }

  /// True for the part of a key's name before a dot. Anything else ends the descent, so that
  /// aliases which contain themselves do too.
  static bool names_group(const std::string& name) {
    return std::ranges::any_of(
        config_keys(), [&](const ConfigKey& key) { return key.name.starts_with(name + '.'); });
  }

  Config& config_;
  std::string name_;
  std::map<std::string, int> lines_;  ///< where each key was given
};

}  // namespace

Status apply_config_text(Config& config, std::string_view yaml, std::string_view name) {
  Reader reader(config, name);
  if (yaml.size() > config_file_bytes_max) {
    return fail(Errc::invalid_argument, "{}: larger than {} bytes; is this a config file?",
                reader.place(-1), config_file_bytes_max);
  }
  TERRACE_ASSIGN(const YAML::Node root, read_yaml(yaml, reader.place(-1)));
  if (root.IsNull()) return {};
  if (!root.IsMap()) {
    return fail(Errc::invalid_argument, "{}: this is no list of keys; write KEY: VALUE",
                reader.place(root.Mark().line));
  }
  return reader.read_map(root, "");
}

Status apply_config_file(Config& config, const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(config_file_bytes_max + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  // A directory opens but cannot be read: only the end of the file is a good end.
  if (!file && !file.eof()) {
    Error error = make_error(Errc::io_error, "{}: {}; check the path of the config file",
                             shown_path(path), std::strerror(errno));
    error.native = errno;
    return tl::unexpected(error);
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return apply_config_text(config, text, path);
}

}  // namespace terrace
