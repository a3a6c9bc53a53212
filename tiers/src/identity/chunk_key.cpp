#include "terrace/tiers/chunk_key.hpp"

#include <fmt/core.h>

#include "field_encoding.hpp"
#include "sha256.hpp"

namespace terrace::tiers {
namespace {

std::uint64_t big_endian(const std::byte* bytes) noexcept {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < sizeof number; ++i) {
    number = number << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  }
  return number;
}

}  // namespace

ChunkKey key_of(const Digest& link) noexcept {
  return {.high = big_endian(link.data()), .low = big_endian(link.data() + 8)};
}

Result<ChunkKey> key_after(const ChunkKey& chunk, std::string_view what) {
  FieldEncoding fields;
  fields.add("terrace after chunk 1").add(chunk.high).add(chunk.low).add(what);
  TERRACE_ASSIGN(const Digest digest, sha256(fields.bytes()));
  return key_of(digest);
}

std::string to_string(const ChunkKey& key) {
  return fmt::format("{:016x}{:016x}", key.high, key.low);
}

}  // namespace terrace::tiers
