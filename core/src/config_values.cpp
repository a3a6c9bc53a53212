#include "config_values.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "terrace/core/bytes.hpp"

namespace terrace::config_values {
namespace {

struct TimeUnit {
  std::string_view name;
  double nanoseconds;
};

constexpr std::array<TimeUnit, 6> time_units{
    {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}}};

constexpr std::size_t text_bytes_max = 4096;  // the longest path that Linux opens

bool within(const ConfigKey& key, double value) { return value >= key.low && value <= key.high; }

bool is_printable(std::string_view text) {
  return text.size() <= text_bytes_max && std::ranges::none_of(text, [](char c) {
           return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
         });
}

}  // namespace

std::optional<std::size_t> parse_integer(std::string_view text) noexcept {
  std::size_t number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last) return std::nullopt;
  return number;
}

std::vector<std::size_t> parse_integers(std::string_view text) {
  std::vector<std::size_t> numbers;
  for (bool more = true; more;) {
    const auto comma = text.find(',');
    const auto number = parse_integer(text.substr(0, comma));
    if (!number) return {};
    numbers.push_back(*number);
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return numbers;
}

std::optional<double> parse_number(std::string_view text) noexcept {
  double number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<Duration> parse_duration(std::string_view text) noexcept {
  const auto unit_begin = text.find_last_of("0123456789.") + 1;  // npos + 1 is 0: no digits
  const auto number = parse_number(text.substr(0, unit_begin));
  if (!number || *number < 0) return std::nullopt;
  for (const TimeUnit& unit : time_units) {
    const double nanoseconds = std::round(*number * unit.nanoseconds);
    if (unit.name == text.substr(unit_begin) && nanoseconds < 0x1p63) {
      return Duration{static_cast<Duration::rep>(nanoseconds)};
    }
  }
  return std::nullopt;
}

bool contains_word(std::string_view words, std::string_view word) noexcept {
  while (!words.empty()) {
    const auto end = std::min(words.find('|'), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

bool accepts(const ConfigKey& key, std::string_view text) {
  if (contains_word(key.words, text)) return true;
  switch (key.kind) {
    case ConfigKind::text:
      return is_printable(text);
    case ConfigKind::choice:
      return false;
    case ConfigKind::integer: {
      const auto value = parse_integer(text);
      return value && within(key, static_cast<double>(*value));
    }
    case ConfigKind::integers: {
      const auto values = parse_integers(text);
      return !values.empty() && std::ranges::all_of(values, [&](std::size_t value) {
        return within(key, static_cast<double>(value));
      });
    }
    case ConfigKind::number: {
      const auto value = parse_number(text);
      return value && within(key, *value);
    }
    case ConfigKind::size: {
      const auto value = parse_size(text);
      return value && within(key, static_cast<double>(*value));
    }
    case ConfigKind::bandwidth:
      return parse_bandwidth(text).has_value();
    case ConfigKind::duration:
      return parse_duration(text).has_value();
    case ConfigKind::budget:
      return parse_token_budget(text).has_value();
  }
  return false;
}

}  // namespace terrace::config_values
