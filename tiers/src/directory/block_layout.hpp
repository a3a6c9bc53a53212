// The places of all parts in the block of a directory. Records name each other by number, from 1; 0
// is no record. Memory of zeros is a directory without contents, but for its header.
//
//   header | tenants | buckets | chunks | copies | leases | heap of leases | gone chunks
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "terrace/tiers/directory.hpp"

namespace terrace::tiers {

/// The number of a record.
using RecordNumber = std::uint32_t;
inline constexpr RecordNumber no_record = 0;

/// Two ends of a doubly linked list of copies.
struct ListEnds {
  RecordNumber oldest = no_record;
  RecordNumber newest = no_record;
  std::uint32_t count = 0;
};

/// Which records of a kind are in use: those below `fresh` that no list of free ones has.
struct PoolState {
  RecordNumber first_free = no_record;
  RecordNumber fresh = 1;  ///< the first that was never used
  std::uint32_t used = 0;
};

/// A chunk with a copy that is reserved, published or dropped and leased.
struct ChunkRecord {
  enum class State : std::uint8_t { free, used };

  ChunkKey key;
  std::array<RecordNumber, stored_tier_count> copies;
  RecordNumber next;       ///< in its bucket, or of the free ones
  std::uint32_t last_use;  ///< in units of 2^28 ns
  std::uint16_t tenant;
  std::uint8_t uses;
  State state;
};

enum class CopyState : std::uint8_t { free, reserved, resident, leaving };

struct CopyRecord {
  std::uint64_t place;
  std::uint64_t checksum;
  std::uint64_t bytes : 36;
  std::uint64_t leases : 16;
  std::uint64_t pins : 8;
  std::uint64_t tier : 2;  ///< from host on
  std::uint64_t state : 2;
  RecordNumber chunk;
  RecordNumber older;
  RecordNumber newer;  ///< or the next free one
  std::uint32_t generation;
};

struct LeaseRecord {
  std::int64_t until;  ///< in nanoseconds of the caller's clock
  RecordNumber copy;   ///< no_record: the lease is free
  std::uint32_t generation;
  std::uint32_t heap_place;  ///< or the next free one
  std::uint32_t unused;
};

struct TenantRecord {
  std::array<std::uint64_t, stored_tier_count> quotas;
  std::array<TierGauges, stored_tier_count> gauges;
  std::array<ListEnds, stored_tier_count> lists;  ///< resident and not pinned
  RecordNumber search;                            ///< where a search for victims has got to
  LookUpCounters counters;
};

/// A namespace that a chunk was to be stored in, by the beginning of its digest.
using NamespaceMark = std::array<std::byte, 16>;

struct Header {
  static constexpr std::size_t namespaces_max = 64;

  // Set once, and checked.
  std::uint64_t magic;
  std::uint64_t version;
  DirectoryOptions options;
  std::uint64_t block_bytes;
  std::uint64_t checksum;  ///< of all above

  std::uint64_t changes;  ///< begun plus ended: odd amid one
  PoolState chunks;
  PoolState copies;
  PoolState leases;
  ListEnds leaving;  ///< dropped copies
  std::array<std::uint64_t, stored_tier_count> limits;
  std::array<TierGauges, stored_tier_count> gauges;
  std::array<NamespaceMark, namespaces_max> namespaces;
  std::uint64_t namespaces_noted;  ///< ever; the newest replaces the oldest
};

static_assert(sizeof(ChunkRecord) == 40 && sizeof(CopyRecord) == 40 && sizeof(LeaseRecord) == 24);
static_assert(std::is_trivially_copyable_v<Header> && std::is_trivially_copyable_v<TenantRecord>);

/// Offsets of the parts of a block, in bytes. Each begins at a multiple of 64.
struct BlockLayout {
  static constexpr std::size_t alignment = 64;

  std::uint64_t tenants = 0;
  std::uint64_t buckets = 0;
  std::uint64_t chunks = 0;
  std::uint64_t copies = 0;
  std::uint64_t leases = 0;
  std::uint64_t heap = 0;
  std::uint64_t gone = 0;
  std::uint64_t bytes = 0;  ///< of the block

  /// `options` are checked.
  [[nodiscard]] static BlockLayout of(const DirectoryOptions& options) noexcept;
};

/// Fills in what zero stands for, and checks what is asked for.
[[nodiscard]] Result<DirectoryOptions> checked(DirectoryOptions options);

/// Fingerprints of gone chunks, in whole buckets.
[[nodiscard]] std::uint64_t gone_slots(const DirectoryOptions& options) noexcept;

}  // namespace terrace::tiers
