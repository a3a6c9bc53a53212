#include "terrace/tiers/part.hpp"

#include <fmt/core.h>
#include <xxhash.h>

#include <array>

namespace terrace::tiers {
namespace {

constexpr std::uint32_t manifest_kind = 0;  // of no part

constexpr std::string_view kind_name(PartKind kind) noexcept {
  switch (kind) {
    case PartKind::rows:
      return "rows";
    case PartKind::index:
      return "index";
    case PartKind::state:
      return "state";
  }
  return "part of an unknown kind";
}

PageKey keyed(const ChunkKey& chunk, const std::array<std::uint32_t, 3>& name) noexcept {
  const XXH128_hash_t pattern = XXH3_128bits(name.data(), sizeof name);
  return {.high = chunk.high ^ pattern.high64, .low = chunk.low ^ pattern.low64};
}

}  // namespace

std::string to_string(const PartName& name) {
  return fmt::format("{} {}/{}", kind_name(name.kind), name.layer, name.number);
}

std::uint64_t part_checksum(const ChunkKey& chunk, const PartName& name,
                            std::span<const std::byte> bytes) noexcept {
  const std::array<std::uint64_t, 4> words{chunk.high, chunk.low,
                                           static_cast<std::uint64_t>(name.kind),
                                           std::uint64_t{name.layer} << 32 | name.number};
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), XXH3_64bits(words.data(), sizeof words));
}

PageKey page_key(const ChunkKey& chunk, const PartName& name) noexcept {
  return keyed(chunk, {static_cast<std::uint32_t>(name.kind), name.layer, name.number});
}

PageKey manifest_page_key(const ChunkKey& chunk) noexcept {
  return keyed(chunk, {manifest_kind, 0, 0});
}

ChunkKey chunk_of_manifest(const PageKey& page) noexcept {
  const PageKey undone = manifest_page_key({.high = page.high, .low = page.low});
  return {.high = undone.high, .low = undone.low};
}

}  // namespace terrace::tiers
