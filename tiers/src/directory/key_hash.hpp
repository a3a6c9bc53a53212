// Where a key lies in the tables of a directory.
#pragma once

#include <xxhash.h>

#include <cstdint>

#include "terrace/tiers/chunk_key.hpp"

namespace terrace::tiers {

/// Keys are digests, but tenants may try tokens until they find keys that begin alike: only with
/// the seed does one know where a key lies.
inline std::uint64_t hash_of(const ChunkKey& key, std::uint64_t seed) noexcept {
  const std::uint64_t words[] = {key.high, key.low};
  return XXH3_64bits_withSeed(words, sizeof words, seed);
}

/// Returns a number below `count`, which the hash's upper bits choose.
inline std::uint64_t place_of(std::uint64_t hash, std::uint64_t count) noexcept {
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::uint64_t>((static_cast<Wide>(hash) * count) >> 64);
}

}  // namespace terrace::tiers
