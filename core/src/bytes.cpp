#include "terrace/core/bytes.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace terrace {
namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array<Unit, 10> units{{{"", 1},
                                      {"B", 1},
                                      {"kB", 1e3},
                                      {"KiB", 0x1p10},
                                      {"MB", 1e6},
                                      {"MiB", 0x1p20},
                                      {"GB", 1e9},
                                      {"GiB", 0x1p30},
                                      {"TB", 1e12},
                                      {"TiB", 0x1p40}}};

std::string_view without_spaces(std::string_view text) {
  const auto first = text.find_first_not_of(' ');
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

}  // namespace

Result<std::size_t> checked_multiply(std::size_t a, std::size_t b) noexcept {
  std::size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) {
    return fail(Errc::out_of_memory, "{} x {} does not fit in 64 bits", a, b);
  }
  return product;
}

Result<std::size_t> parse_size(std::string_view text) {
  const std::string_view trimmed = without_spaces(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number);
  const auto used = static_cast<std::size_t>(end - trimmed.data());
  const std::string_view unit_name = without_spaces(trimmed.substr(used));
  if (error == std::errc{} && number >= 0 && std::isfinite(number)) {
    for (const Unit& unit : units) {
      const double bytes = number * unit.bytes;
      if (unit.name == unit_name && bytes < 0x1p63) return static_cast<std::size_t>(bytes);
    }
  }
  return fail(Errc::invalid_argument, "'{}' is not a size; write for example 64KiB or 8GiB", text);
}

std::optional<double> parse_bandwidth(std::string_view text) {
  constexpr std::string_view per_second = "/s";
  if (!text.ends_with(per_second)) return std::nullopt;
  const auto bytes = parse_size(text.substr(0, text.size() - per_second.size()));
  if (!bytes || *bytes == 0) return std::nullopt;
  return static_cast<double>(*bytes);
}

std::string format_size(std::size_t bytes) {
  constexpr std::array<std::string_view, 5> names{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t step = 0;
  while (value >= 1024 && step + 1 < names.size()) {
    value /= 1024;
    ++step;
  }
  return fmt::format("{:.4g} {}", value, names[step]);
}

}  // namespace terrace
