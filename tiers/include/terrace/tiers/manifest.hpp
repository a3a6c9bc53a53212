// A manifest: which parts a chunk has. A chunk is found, leased, published and dropped as a whole;
// the manifest says what the whole is.
//
//   TERRACE_ASSIGN(const Manifest manifest, Manifest::create(chunk, 256, parts));
//   store(manifest.write());                                    // after its parts
//   ...
//   TERRACE_ASSIGN(const Manifest found, Manifest::read(chunk, bytes));
//   const ChunkVerdict verdict = found.judge([&](const Part& part) { return load(part); });
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "terrace/core/function_ref.hpp"
#include "terrace/core/result.hpp"
#include "terrace/tiers/look_up.hpp"
#include "terrace/tiers/part.hpp"

namespace terrace::tiers {

/// The state of a part that was to be read.
enum class PartState : std::uint8_t {
  intact,
  lost,     ///< the store has no such page
  corrupt,  ///< its bytes are not those that were written
  late,     ///< it was not there in time
};

/// The use that can be made of a chunk.
enum class ChunkUse : std::uint8_t {
  whole,
  without_index,  ///< rows and states are intact; the index is to be built anew
  miss,
};

struct ChunkVerdict {
  ChunkUse use = ChunkUse::whole;
  MissReason reason = MissReason::corrupt;  ///< of a miss
  std::optional<PartName> part = {};        ///< the part that decided it
};

/// Marks the tenant that a chunk belongs to, in files that outlive a process: 0 = the one without a
/// salt, else the first bytes of the digest of its salt.
using OwnerMark = std::uint64_t;

/// Threads  safe to read from any thread
class Manifest {
 public:
  static constexpr std::size_t parts_max = std::size_t{1} << 20;

  /// `parts` may be in any order; the manifest has them in the order of their names.
  ///
  /// Errors   invalid_argument: no tokens, no part beside the index, a part without bytes, two
  ///          parts of one name, more than parts_max of them, or more than 2^63 bytes
  [[nodiscard]] static Result<Manifest> create(const ChunkKey& chunk, std::uint32_t tokens,
                                               std::vector<Part> parts, OwnerMark owner = 0);

  /// Reads what write() made of the manifest of `chunk`.
  ///
  /// Errors   corrupt: other bytes, or the manifest of another chunk; unsupported: of another
  ///          version. Both are a miss
  [[nodiscard]] static Result<Manifest> read(const ChunkKey& chunk,
                                             std::span<const std::byte> bytes);

  /// Layout   little-endian: 8 bytes of magic, XXH3-64 of what follows, version (4), parts (4),
  ///          chunk key (high 8, low 8), tokens (4), owner (8); each part: kind (4), layer (4),
  ///          number (4), bytes (8), checksum (8)
  [[nodiscard]] std::vector<std::byte> write() const;

  /// Whether write() may have made so many bytes.
  [[nodiscard]] static bool may_have(std::size_t bytes) noexcept;

  /// Returns the checksum that write() puts into the bytes: the directory keeps it beside the key,
  /// so that a manifest which is intact, but older, does not pass for this one.
  [[nodiscard]] std::uint64_t checksum() const;

  [[nodiscard]] const ChunkKey& chunk() const noexcept { return chunk_; }
  [[nodiscard]] std::uint32_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] OwnerMark owner() const noexcept { return owner_; }
  [[nodiscard]] std::span<const Part> parts() const noexcept { return parts_; }
  /// Returns the bytes of all parts.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Returns the part of that name, or null.
  [[nodiscard]] const Part* find(const PartName& name) const noexcept;

  /// Says what the chunk is good for. Asks for each part, in order, until a part that is not the
  /// index's is not intact.
  [[nodiscard]] ChunkVerdict judge(FunctionRef<PartState(const Part&)> state_of) const;

 private:
  Manifest(const ChunkKey& chunk, std::uint32_t tokens, std::vector<Part> parts, OwnerMark owner);

  ChunkKey chunk_;
  std::uint32_t tokens_;
  OwnerMark owner_;
  std::vector<Part> parts_;
  std::uint64_t bytes_ = 0;
};

}  // namespace terrace::tiers
