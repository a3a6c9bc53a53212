// Sizes in bytes: checked products, alignment, and the way people write them ("8GiB").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"

namespace terrace {

/// Returns a * b, or out_of_memory when the product does not fit in 64 bits.
Result<std::size_t> checked_multiply(std::size_t a, std::size_t b) noexcept;

/// Returns `value` rounded up to a multiple of `alignment` (a power of two).
constexpr std::size_t align_up(std::size_t value, std::size_t alignment) noexcept {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// Returns ceil(a / b) for b > 0.
constexpr std::size_t divide_up(std::size_t a, std::size_t b) noexcept { return (a + b - 1) / b; }

/// Reads "4096", "64KiB", "8 GiB", "25GB": binary with an i, decimal without.
/// Errors: invalid_argument with the text and an example.
Result<std::size_t> parse_size(std::string_view text);

/// Reads "25GB/s", in bytes a second; nothing for another text, and for zero: no copy would ever
/// arrive.
std::optional<double> parse_bandwidth(std::string_view text);

/// Writes a size for people: "8 GiB", "1.5 MiB".
std::string format_size(std::size_t bytes);

}  // namespace terrace
