#include "terrace/core/config.hpp"

#include <algorithm>
#include <limits>

#include "config_values.hpp"
#include "terrace/core/assert.hpp"
#include "terrace/core/bytes.hpp"
#include "terrace/core/nearest_name.hpp"

namespace terrace {
namespace {

constexpr std::size_t shown_characters_max = 40;

std::string_view after_last_dot(std::string_view name) {
  return name.substr(name.find_last_of('.') + 1);  // npos + 1 is 0: the whole name
}

/// Writes "auto|host|cuda" as "auto, host or cuda".
std::string spoken_list(std::string_view words) {
  std::string list(words);
  if (const auto last = list.find_last_of('|'); last != std::string::npos) {
    list.replace(last, 1, " or ");
  }
  for (auto bar = list.find('|'); bar != std::string::npos; bar = list.find('|')) {
    list.replace(bar, 1, ", ");
  }
  return list;
}

std::string describe_kind(const ConfigKey& key) {
  switch (key.kind) {
    case ConfigKind::text:
      return "a line of printable text";
    case ConfigKind::choice:
      return spoken_list(key.words);
    case ConfigKind::integer:
      // The widest limit has no short decimal form.
      return key.high >= 0x1p64
                 ? "an integer from 0 to 2^64 - 1"
                 : fmt::format("an integer from {:.0f} to {:.0f}", key.low, key.high);
    case ConfigKind::integers:
      return fmt::format("integers from {:.0f} to {:.0f}, as 10 or 10,8,12", key.low, key.high);
    case ConfigKind::number:
      return fmt::format("a number from {} to {}", key.low, key.high);
    case ConfigKind::size:
      return fmt::format(
          "a size {} and below 16EiB such as 8GiB",
          key.low <= 1 ? "above 0" : "from " + format_size(static_cast<std::size_t>(key.low)));
    case ConfigKind::bandwidth:
      return "a rate above 0 and below 16EiB/s such as 25GB/s";
    case ConfigKind::duration:
      return "a time such as 10us or 60s";
    case ConfigKind::budget:
      return "a share such as 0.1, tokens such as 2048, or mass:0.95";
  }
  return {};
}

std::size_t position(const ConfigKey* key) {
  TERRACE_ASSERT(key != nullptr);
  return static_cast<std::size_t>(key - config_keys().data());
}

}  // namespace

const ConfigKey* find_config_key(std::string_view name) noexcept {
  const auto keys = config_keys();
  const auto found = std::ranges::find(keys, name, &ConfigKey::name);
  return found == keys.end() ? nullptr : &*found;
}

std::string_view nearest_config_key(std::string_view name) {
  constexpr std::size_t name_characters_max = 100;  // longer is no slip of the finger
  if (name.size() > name_characters_max) return {};
  std::vector<std::string_view> names;
  for (const ConfigKey& key : config_keys()) names.push_back(key.name);
  return nearest_name(name, names, [name](std::string_view key) {
    // "budget" and "cache.budget" mean retrieval.budget: the right word in the wrong place is near.
    const bool same_word = after_last_dot(name) == after_last_dot(key);
    return std::min(edit_distance(name, key), same_word ? 2 : std::string_view::npos);
  });
}

std::string describe_accepted(const ConfigKey& key) {
  const bool has_extra_words = key.kind != ConfigKind::choice && !key.words.empty();
  return has_extra_words ? fmt::format("{} or {}", describe_kind(key), spoken_list(key.words))
                         : describe_kind(key);
}

Error unknown_config_key(std::string_view name, std::string_view place) {
  const std::string_view nearest = nearest_config_key(name);
  if (nearest.empty()) {
    return make_error(Errc::invalid_argument,
                      "{}: unknown key '{}'; `terrace config explain` lists the keys", place,
                      shown(name));
  }
  return make_error(Errc::invalid_argument, "{}: unknown key '{}'; did you mean '{}'?", place,
                    shown(name), nearest);
}

std::string shown(std::string_view text) {
  std::string result(text.substr(0, shown_characters_max));
  for (std::size_t i = 0; i < result.size(); ++i) {
    const auto byte = static_cast<unsigned char>(result[i]);
    if (byte < 0x20 || byte == 0x7f) result[i] = '?';
    // In UTF-8 control characters from 0x80 on are two bytes.
    if (i > 0 && result[i - 1] == '\xc2' && byte >= 0x80 && byte < 0xa0) {
      result[i - 1] = result[i] = '?';
    }
  }
  if (text.size() > shown_characters_max) result += "...";
  return result;
}

std::string without_password(std::string_view url) {
  const std::size_t at = url.rfind('@');
  if (at == std::string_view::npos) return std::string(url);
  const std::size_t scheme = url.find("://");
  const std::size_t begin = scheme < at ? scheme + 3 : 0;
  return fmt::format("{}***{}", url.substr(0, begin), url.substr(at));
}

std::string_view to_string(ConfigOrigin origin) noexcept {
  switch (origin) {
    case ConfigOrigin::default_value:
      return "default";
    case ConfigOrigin::file:
      return "file";
    case ConfigOrigin::environment:
      return "environment";
    case ConfigOrigin::flag:
      return "flag";
  }
  return "unknown";
}

Config::Config() {
  values_.reserve(config_keys().size());
  for (const ConfigKey& key : config_keys()) {
    values_.push_back({.text = std::string(key.default_text), .source = {}});
  }
}

Status Config::set(std::string_view name, std::string_view text, const ConfigSource& source) {
  const ConfigKey* key = find_config_key(name);
  if (key == nullptr) return tl::unexpected(unknown_config_key(name, source.place));
  if (!config_values::accepts(*key, text)) {
    return fail(Errc::invalid_argument, "{}: {}: '{}' is not accepted; write {}", source.place,
                name, shown(key->has_password ? without_password(text) : std::string(text)),
                describe_accepted(*key));
  }
  Value& value = values_[position(key)];
  if (source.origin >= value.source.origin) value = {.text = std::string(text), .source = source};
  return {};
}

Status Config::validate() const {
  const std::size_t low = integer("planning.iterations_min");
  const std::size_t high = integer("planning.iterations_max");
  if (low > high) {
    return fail(Errc::invalid_argument,
                "planning.iterations_min {} is above planning.iterations_max {}; lower one or "
                "raise the other",
                low, high);
  }
  return {};
}

const Config::Value& Config::value(std::string_view name) const {
  return values_[position(find_config_key(name))];
}

const std::string& Config::text(std::string_view name) const { return value(name).text; }

std::string Config::visible_text(std::string_view name) const {
  const ConfigKey* const key = find_config_key(name);
  const std::string& all = values_[position(key)].text;
  return key->has_password ? without_password(all) : all;
}

const ConfigSource& Config::source(std::string_view name) const { return value(name).source; }

bool Config::is(std::string_view name, std::string_view word) const { return text(name) == word; }

const std::string& Config::text_of_kind(std::string_view name, ConfigKind kind) const {
  const ConfigKey* key = find_config_key(name);
  TERRACE_ASSERT(key != nullptr && key->kind == kind);
  return values_[position(key)].text;
}

std::size_t Config::integer(std::string_view name) const {
  const auto number = integer_or_auto(name);
  TERRACE_ASSERT(number.has_value());
  return *number;
}

std::optional<std::size_t> Config::integer_or_auto(std::string_view name) const {
  return config_values::parse_integer(text_of_kind(name, ConfigKind::integer));
}

std::vector<std::size_t> Config::integers_or_auto(std::string_view name) const {
  return config_values::parse_integers(text_of_kind(name, ConfigKind::integers));
}

double Config::number(std::string_view name) const {
  return config_values::parse_number(text_of_kind(name, ConfigKind::number)).value();
}

std::size_t Config::size_bytes(std::string_view name) const {
  return parse_size(text_of_kind(name, ConfigKind::size))
      .value_or(std::numeric_limits<std::size_t>::max());
}

double Config::bytes_per_second(std::string_view name) const {
  const std::string& text = text_of_kind(name, ConfigKind::bandwidth);
  return text == "unlimited" ? std::numeric_limits<double>::infinity()
                             : parse_bandwidth(text).value();
}

Duration Config::duration(std::string_view name) const {
  return config_values::parse_duration(text_of_kind(name, ConfigKind::duration)).value();
}

TokenBudget Config::budget(std::string_view name) const {
  return parse_token_budget(text_of_kind(name, ConfigKind::budget)).value();
}

}  // namespace terrace
