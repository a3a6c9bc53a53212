// Reading single config values. Private to core: the config tree is the way to ask for them.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/core/config.hpp"

namespace terrace::config_values {

std::optional<std::size_t> parse_integer(std::string_view text) noexcept;
/// Reads "10,8,12"; an empty result means that the text is no such list.
std::vector<std::size_t> parse_integers(std::string_view text);
std::optional<double> parse_number(std::string_view text) noexcept;
/// Reads "10us", "1.5s"; the unit is required.
std::optional<Duration> parse_duration(std::string_view text) noexcept;

/// True when `word` is among `words`, which are separated by '|'.
bool contains_word(std::string_view words, std::string_view word) noexcept;

/// True when `text` is one of the key's words or a value of its kind within its limits.
bool accepts(const ConfigKey& key, std::string_view text);

}  // namespace terrace::config_values
