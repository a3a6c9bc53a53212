#include "field_encoding.hpp"

#include "little_endian.hpp"

namespace terrace::tiers {

FieldEncoding& FieldEncoding::add(std::span<const std::byte> field) {
  append_little_endian(bytes_, std::uint64_t{field.size()});
  append_bytes(bytes_, field);
  return *this;
}

FieldEncoding& FieldEncoding::add(std::uint64_t number) {
  append_little_endian(bytes_, std::uint64_t{sizeof number});
  append_little_endian(bytes_, number);
  return *this;
}

}  // namespace terrace::tiers
