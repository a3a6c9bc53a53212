// Lists of fields as one string of bytes, from which the list can be read again: each field is its
// length, 8 bytes little-endian, and its bytes. So no two different lists are encoded alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace terrace::tiers {

class FieldEncoding {
 public:
  FieldEncoding& add(std::span<const std::byte> field);
  FieldEncoding& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
  FieldEncoding& add(std::uint64_t number);

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace terrace::tiers
