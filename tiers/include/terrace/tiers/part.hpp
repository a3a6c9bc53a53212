// The parts that a chunk is made of, each with a name, a size and a checksum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "terrace/core/store.hpp"
#include "terrace/tiers/chunk_key.hpp"

namespace terrace::tiers {

enum class PartKind : std::uint32_t {
  rows = 1,   ///< keys and values of a layer, or of one layer for a group of layers
  index = 2,  ///< what a retrieval policy made of a layer's rows; it can be made again from them
  state = 3,  ///< bytes that an engine brings, opaque: tails of windows, recurrent states
};

/// Names a part within its chunk. The number says which of several: of rows, the KV head; of an
/// index, the part that the policy numbers so; of states, the one that the engine numbers so.
struct PartName {
  PartKind kind = PartKind::rows;
  std::uint32_t layer = 0;
  std::uint32_t number = 0;
  auto operator<=>(const PartName&) const = default;
};

/// Returns "rows 3/0": kind, layer, number.
[[nodiscard]] std::string to_string(const PartName& name);

struct Part {
  PartName name = {};
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< part_checksum
  bool operator==(const Part&) const = default;
};

/// Returns XXH3 of the bytes, with chunk and name as its seed: bytes of another part, or of the
/// same part of another chunk, do not pass for these.
[[nodiscard]] std::uint64_t part_checksum(const ChunkKey& chunk, const PartName& name,
                                          std::span<const std::byte> bytes) noexcept;

/// Returns the key under which a Store keeps a part: the chunk's key, changed by a pattern that the
/// name alone makes. Two parts of one chunk have different keys. Parts of two chunks have one key
/// only if the 128-bit keys of the chunks differ by one given pattern.
[[nodiscard]] PageKey page_key(const ChunkKey& chunk, const PartName& name) noexcept;

/// Returns the key under which a Store keeps the manifest of a chunk.
[[nodiscard]] PageKey manifest_page_key(const ChunkKey& chunk) noexcept;

/// Returns the chunk whose manifest a page with this key is, if it is a manifest: its contents say
/// whether it is.
[[nodiscard]] ChunkKey chunk_of_manifest(const PageKey& page) noexcept;

}  // namespace terrace::tiers
