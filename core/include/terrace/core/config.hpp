// The config tree: which keys there are, what each accepts, and the values in force together with
// where each came from.
//
//   Config config;  // all defaults
//   TERRACE_TRY(config.set("cache.policy", "lfu", {ConfigOrigin::flag, "--cache"}));
//   const std::size_t tokens = config.integer_or_auto("cache.tokens").value_or(derived);
//
// Reading YAML, the environment and flags is not here but in terrace/runtime/config.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"
#include "terrace/core/token_budget.hpp"

namespace terrace {

/// How a key's text is read. A switch is a choice of on and off.
enum class ConfigKind : std::uint8_t {
  text,       ///< anything printable
  choice,     ///< one of the key's words
  integer,    ///< a whole number, not negative
  integers,   ///< one or more, separated by commas: 10,8,12
  number,     ///< a decimal number
  size,       ///< bytes: 4096, 64KiB, 8GiB
  bandwidth,  ///< bytes per second: 25GB/s
  duration,   ///< 10us, 1.5s
  budget,     ///< see terrace/core/token_budget.hpp
};

/// A row of the schema. The table is in core/src/config_keys.cpp.
struct ConfigKey {
  std::string_view name;  ///< dotted: "retrieval.budget"
  ConfigKind kind = ConfigKind::text;
  std::string_view default_text;
  std::string_view words = {};  ///< accepted besides a value of the kind: "auto", "auto|host|cuda"
  double low = 0;               ///< limits of integers, numbers and sizes, both included
  double high = 0;
  std::string_view meaning;   ///< one line for people
  bool has_password = false;  ///< a URL whose password is in no message, report or trace
};

/// Returns the schema, grouped by the part of the name before the dot.
std::span<const ConfigKey> config_keys() noexcept;

/// Returns the key of that name, or null.
const ConfigKey* find_config_key(std::string_view name) noexcept;

/// Returns the key whose name is nearest to a mistyped `name`, or an empty text if no key is near.
std::string_view nearest_config_key(std::string_view name);

/// Returns what the key accepts, for messages: "an integer from 1 to 8", "auto, host or cuda".
std::string describe_accepted(const ConfigKey& key);

/// Returns the error for a name that is not in the schema, with the nearest one that is.
[[nodiscard]] Error unknown_config_key(std::string_view name, std::string_view place);

/// Returns user-given text fit for one line of a message: cut short, control characters masked.
std::string shown(std::string_view text);

/// Returns a URL with `***` in place of user and password: all between :// and the last @.
std::string without_password(std::string_view url);

/// The origin of a value, weakest first: a stronger origin wins in any order of arrival.
enum class ConfigOrigin : std::uint8_t { default_value, file, environment, flag };

/// Returns the word `terrace config explain` uses: default, file, environment, flag.
std::string_view to_string(ConfigOrigin origin) noexcept;

struct ConfigSource {
  ConfigOrigin origin = ConfigOrigin::default_value;
  std::string place = {};  ///< "serve.yaml:3", "TERRACE_SEED", "--set"; empty for a default

  bool operator==(const ConfigSource&) const = default;
};

/// The values in force. Every text it holds has passed its key's check, so getters cannot fail:
/// asking for an unknown name, or for another kind than the key's, is a programming error.
///
/// Threads  reading is safe from any thread while no thread sets
class Config {
 public:
  /// Starts with every key at its default.
  Config();

  /// Checks `text` and takes it over, unless the value in force has a stronger origin.
  ///
  /// Errors   invalid_argument: unknown name (with the nearest known one), or text the key does not
  ///          accept (with what it accepts). The message starts with source.place. On error
  ///          nothing is changed
  [[nodiscard]] Status set(std::string_view name, std::string_view text,
                           const ConfigSource& source);

  /// Checks what concerns several keys at once. Call it after the last set().
  ///
  /// Errors   invalid_argument: names the keys that contradict each other
  [[nodiscard]] Status validate() const;

  [[nodiscard]] const std::string& text(std::string_view name) const;
  /// Returns the text as people may see it: without a password.
  [[nodiscard]] std::string visible_text(std::string_view name) const;
  [[nodiscard]] const ConfigSource& source(std::string_view name) const;

  /// True when the value is exactly `word`: is("backend", "auto").
  [[nodiscard]] bool is(std::string_view name, std::string_view word) const;

  [[nodiscard]] std::size_t integer(std::string_view name) const;
  /// Returns nothing where the value is the word auto.
  [[nodiscard]] std::optional<std::size_t> integer_or_auto(std::string_view name) const;
  /// Returns nothing where the value is the word auto, else at least one number.
  [[nodiscard]] std::vector<std::size_t> integers_or_auto(std::string_view name) const;
  [[nodiscard]] double number(std::string_view name) const;
  /// A word, "unlimited" or "auto", is the largest size_t.
  [[nodiscard]] std::size_t size_bytes(std::string_view name) const;
  /// "unlimited" is infinity.
  [[nodiscard]] double bytes_per_second(std::string_view name) const;
  [[nodiscard]] Duration duration(std::string_view name) const;
  [[nodiscard]] TokenBudget budget(std::string_view name) const;

 private:
  struct Value {
    std::string text;
    ConfigSource source;
  };
  [[nodiscard]] const Value& value(std::string_view name) const;
  [[nodiscard]] const std::string& text_of_kind(std::string_view name, ConfigKind kind) const;

  std::vector<Value> values_;  ///< in the order of config_keys()
};

}  // namespace terrace
