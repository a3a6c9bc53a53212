// Bytes of what is hashed or stored: numbers are little-endian on any machine.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <vector>

namespace terrace::tiers {

inline void append_bytes(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  to.resize(to.size() + bytes.size());
  std::memcpy(to.data() + to.size() - bytes.size(), bytes.data(), bytes.size());
}

template <std::unsigned_integral Number>
void append_little_endian(std::vector<std::byte>& to, Number number) {
  for (std::size_t i = 0; i < sizeof number; ++i) {
    to.push_back(static_cast<std::byte>(number >> (8 * i)));
  }
}

/// Takes a number off the front of some bytes, which must have as many.
template <std::unsigned_integral Number>
Number take_little_endian(std::span<const std::byte>& from) {
  Number number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    number = static_cast<Number>(number | static_cast<Number>(from[i]) << (8 * i));
  }
  from = from.subspan(sizeof number);
  return number;
}

}  // namespace terrace::tiers
