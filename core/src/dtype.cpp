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
