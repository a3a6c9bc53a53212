// The knowledge of a library about its store: a directory of one tier, which parts each chunk has,
// and who reads chunks. It moves no bytes: it says which pages are to be erased.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "directory/key_hash.hpp"
#include "part_lists.hpp"
#include "terrace/offload/aligned_bytes.hpp"
#include "terrace/tiers/directory.hpp"
#include "terrace/tiers/manifest.hpp"

namespace terrace::tiers {

/// Tenants that a library tells apart.
inline constexpr std::uint32_t tenants_max = 1024;

/// Threads  one at a time
class ChunkCatalogue {
 public:
  static Result<std::unique_ptr<ChunkCatalogue>> create(const DirectoryOptions& options);

  [[nodiscard]] Directory& directory() noexcept { return directory_; }
  [[nodiscard]] const Directory& directory() const noexcept { return directory_; }
  [[nodiscard]] bool has(const ChunkKey& key) const { return directory_.chunk(key).has_value(); }
  /// Returns those of the keys that it has not, in their order.
  [[nodiscard]] std::vector<ChunkKey> lacking(std::span<const ChunkKey> keys) const;

  struct Entry {
    const Digest& root;
    TenantId tenant = {};
    ChunkKey key = {};
    std::uint64_t bytes = 0;
  };
  /// Takes a place in the directory; where that is full, the chunk evicts others. Errors: those of
  /// Directory::reserve.
  [[nodiscard]] Result<Reserved> reserve(const Entry& entry);
  void publish(CopyHandle reserved, const Manifest& manifest, TimePoint now);
  /// Takes up a chunk that was found in the store. `manifest`: null where it is damaged: look-ups
  /// say so from then on, and its page is to be erased. A chunk that somebody is writing, or for
  /// which there is no place, is left out.
  void take_up(const Entry& entry, const Manifest* manifest, TimePoint now);

  /// Leases those of the chunks that are there, until return_lease(); returns them.
  std::vector<ChunkKey> lease(std::span<const ChunkKey> keys, TimePoint now);
  void return_lease(std::span<const ChunkKey> keys);

  /// Look-ups do not find the chunk from now on. Its pages are erased once no lease holds it.
  void drop(const ChunkKey& key, DropReason reason);

  /// Evicts chunks, of one tenant or of all, that were used longest ago, and are not leased.
  /// Returns their bytes.
  std::uint64_t evict(std::uint64_t bytes, std::optional<TenantId> tenant = {});
  [[nodiscard]] std::uint64_t evicted() const noexcept { return evicted_; }

  /// Pages that are to be erased. They have to be before one of them is written again.
  std::vector<PageKey> to_erase;

 private:
  struct KeyHash {
    std::uint64_t seed = 0;
    std::size_t operator()(const ChunkKey& key) const noexcept { return hash_of(key, seed); }
  };
  struct Lease {
    LeaseHandle handle = {};
    std::uint64_t holders = 0;
  };

  ChunkCatalogue(offload::AlignedBytes block, Directory directory, std::uint64_t seed);
  void publish_parts(CopyHandle reserved, const std::vector<PartName>& parts,
                     std::uint64_t checksum, TimePoint now);
  void collect();
  void note_freed(const FreedCopy& copy);

  offload::AlignedBytes block_;
  Directory directory_;
  PartLists parts_;
  std::unordered_map<ChunkKey, Lease, KeyHash> leases_;
  std::uint64_t evicted_ = 0;
};

}  // namespace terrace::tiers
