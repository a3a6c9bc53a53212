// The name of a chunk: 128 bits of the SHA-256 chain of its prefix.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "terrace/core/result.hpp"
#include "terrace/tiers/digest.hpp"

namespace terrace::tiers {

/// The first 16 bytes of a link of a chain, read as two big-endian numbers. A key names the chunk,
/// all that comes before it and the namespace.
struct ChunkKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const ChunkKey&) const = default;
};

[[nodiscard]] ChunkKey key_of(const Digest& link) noexcept;

/// Returns the key of what is stored for the prefix that ends with a chunk, and depends on more
/// than the tokens: `what` says on what, as the settings of an index.
///
/// Errors   out_of_memory: the hash could not be computed
[[nodiscard]] Result<ChunkKey> key_after(const ChunkKey& chunk, std::string_view what);

/// Returns 32 lower-case hexadecimal digits: those that the digest begins with.
[[nodiscard]] std::string to_string(const ChunkKey& key);

}  // namespace terrace::tiers
