#include "terrace/core/dtype.hpp"

#include <cstring>

namespace terrace {

std::string_view to_string(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::f32:
      return "f32";
    case Dtype::f16:
      return "f16";
    case Dtype::bf16:
      return "bf16";
  }
  return "unknown";
}

std::optional<Dtype> parse_dtype(std::string_view name) noexcept {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    if (to_string(dtype) == name) return dtype;
  }
  return std::nullopt;
}

std::uint16_t f32_to_f16(float value) noexcept {
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

float f16_to_f32(std::uint16_t value) noexcept {
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

float load_f32(const void* array, Dtype dtype, std::size_t i) noexcept {
  const auto* bytes = static_cast<const std::byte*>(array) + i * size_bytes(dtype);
  if (dtype == Dtype::f32) {
    float value = 0;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  std::uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return dtype == Dtype::f16 ? f16_to_f32(value) : bf16_to_f32(value);
}

void store_f32(void* array, Dtype dtype, std::size_t i, float value) noexcept {
  auto* bytes = static_cast<std::byte*>(array) + i * size_bytes(dtype);
  if (dtype == Dtype::f32) {
    std::memcpy(bytes, &value, sizeof value);
    return;
  }
  const std::uint16_t narrow = dtype == Dtype::f16 ? f32_to_f16(value) : f32_to_bf16(value);
  std::memcpy(bytes, &narrow, sizeof narrow);
}

}  // namespace terrace
