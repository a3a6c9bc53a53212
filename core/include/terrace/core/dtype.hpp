// Element types of tensors and the scalar conversions between them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace terrace {

enum class Dtype : std::uint8_t { f32, f16, bf16 };

constexpr std::size_t size_bytes(Dtype dtype) noexcept { return dtype == Dtype::f32 ? 4 : 2; }

/// Returns the name the command line and configs use: f32, f16, bf16.
std::string_view to_string(Dtype dtype) noexcept;

/// Returns the dtype of that name, or nothing.
std::optional<Dtype> parse_dtype(std::string_view name) noexcept;

/// Rounds to the nearest bfloat16, ties to even; NaN stays NaN.
constexpr std::uint16_t f32_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float bf16_to_f32(std::uint16_t value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

/// Rounds to the nearest IEEE half, ties to even; overflow becomes infinity, NaN stays NaN.
std::uint16_t f32_to_f16(float value) noexcept;

float f16_to_f32(std::uint16_t value) noexcept;

/// Returns element `i` of an array of `dtype` as f32.
float load_f32(const void* array, Dtype dtype, std::size_t i) noexcept;

/// Rounds `value` to `dtype` and stores it as element `i`.
void store_f32(void* array, Dtype dtype, std::size_t i, float value) noexcept;

}  // namespace terrace
