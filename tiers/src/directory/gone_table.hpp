// Chunks that are not there any more, or found no room, are remembered: 4 bytes each. In each
// bucket the newest comes first and the oldest makes room. An entry stays when its chunk comes
// back: a look-up finds the chunk first.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "terrace/tiers/chunk_key.hpp"
#include "terrace/tiers/look_up.hpp"

namespace terrace::tiers {

struct GoneChunk {
  MissReason reason = MissReason::evicted;  ///< evicted, corrupt or no_room
  std::uint32_t uses = 0;                   ///< at most GoneTable::uses_max
  bool operator==(const GoneChunk&) const = default;
};

class GoneTable {
 public:
  static constexpr std::size_t bucket_slots = 8;
  static constexpr std::uint32_t uses_max = 3;

  /// `slots`: whole buckets, at first all zero.
  GoneTable(std::span<std::uint32_t> slots, std::uint64_t seed) noexcept
      : slots_(slots), seed_(seed) {}

  [[nodiscard]] std::optional<GoneChunk> find(const ChunkKey& key) const noexcept;
  /// Remembers a chunk as the newest of its bucket, in place of what was known of it.
  void remember(const ChunkKey& key, const GoneChunk& gone) noexcept;

 private:
  struct Place {
    std::span<std::uint32_t> bucket;
    std::uint32_t fingerprint;
  };
  [[nodiscard]] Place place_of_key(const ChunkKey& key) const noexcept;

  std::span<std::uint32_t> slots_;
  std::uint64_t seed_;
};

}  // namespace terrace::tiers
