// Element types of tensors and the scalar conversions between them. The conversions are constexpr,
// so that device code uses the same ones, down to the bits of NaN.
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
constexpr std::uint16_t f32_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<std::uint16_t>(sign | 0x7e00U);
  // 65520 is half-way between the largest half and the next step: from there on it is infinity.
  if (magnitude >= 0x477ff000U) return static_cast<std::uint16_t>(sign | 0x7c00U);
  if (magnitude < 0x38800000U) {
    // Below the smallest normal half. Adding 0.5 makes the FPU round at the right bit.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U));
  }
  const std::uint32_t rounding = 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((magnitude + rounding - 0x38000000U) >> 13));
}

constexpr float f16_to_f32(std::uint16_t value) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(value & 0x8000U) << 16;
  const std::uint32_t exponent = (value >> 10) & 0x1fU;
  const std::uint32_t mantissa = value & 0x3ffU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

/// Returns element `i` of an array of `dtype` as f32.
float load_f32(const void* array, Dtype dtype, std::size_t i) noexcept;

/// Rounds `value` to `dtype` and stores it as element `i`.
void store_f32(void* array, Dtype dtype, std::size_t i, float value) noexcept;

}  // namespace terrace
