// IEEE halves of the stand-in: what kernels read and write of them.
#pragma once

#include <bit>
#include <cstdint>

struct __half {
  std::uint16_t bits;
};

inline __half __ushort_as_half(unsigned short bits) { return {bits}; }

inline float __half2float(__half half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half.bits & 0x8000U) << 16;
  const std::uint32_t magnitude = half.bits & 0x7fffU;
  if (magnitude >= 0x7c00U) {
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  }
  // The exponent's bias is moved by a product, which makes normal numbers of denormal ones.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(scaled));
}

inline unsigned short __half_as_ushort(__half half) { return half.bits; }

/// To the nearest, ties to even.
inline __half __float2half_rn(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  std::uint32_t magnitude = bits & 0x7fffffffU;
  const auto signed_half = [sign](std::uint32_t half) {
    return __half{static_cast<std::uint16_t>(sign | half)};
  };
  if (magnitude > 0x7f800000U) return {0x7fffU};              // NaN
  if (magnitude >= 0x477ff000U) return signed_half(0x7c00U);  // beyond the largest half
  if (magnitude < 0x38800000U) {
    // Adding 0.5 rounds at a unit of 2^-24, that of denormal halves.
    const float rounded = std::bit_cast<float>(magnitude) + 0.5F;
    return signed_half(std::bit_cast<std::uint32_t>(rounded) - std::bit_cast<std::uint32_t>(0.5F));
  }
  magnitude += 0xfffU + (magnitude >> 13 & 1U);
  return signed_half((magnitude >> 13) - (112U << 10));
}
