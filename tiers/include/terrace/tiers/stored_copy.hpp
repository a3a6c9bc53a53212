// The copies of chunks that a directory knows, and the names by which their holders have them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "terrace/core/clock.hpp"
#include "terrace/core/tier.hpp"
#include "terrace/tiers/chunk_key.hpp"

namespace terrace::tiers {

/// Tiers that a directory knows: copies on a device are the runtime's own.
inline constexpr std::array stored_tiers{Tier::host, Tier::nvme, Tier::remote};
inline constexpr std::size_t stored_tier_count = stored_tiers.size();

/// A tenant, numbered by the caller; below DirectoryOptions::tenants_max.
enum class TenantId : std::uint16_t {};

/// Whether what a handle names is still there. A handle whose copy or lease is gone is stale for
/// good, whatever took its place.
enum class Answer : std::uint8_t {
  done,
  stale,  ///< nothing was changed
};

/// Names one copy of a chunk, from its reservation until it is gone.
struct CopyHandle {
  std::uint32_t copy = 0;
  std::uint32_t generation = 0;
  bool operator==(const CopyHandle&) const = default;
};

/// Names one lease, until it ends.
struct LeaseHandle {
  std::uint32_t lease = 0;
  std::uint32_t generation = 0;
  bool operator==(const LeaseHandle&) const = default;
};

/// A published copy.
struct StoredCopy {
  CopyHandle handle = {};
  std::uint64_t place = 0;  ///< the caller's number: an offset in the tier's memory or file
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< the caller's: Manifest::checksum
  std::uint32_t pins = 0;
  std::uint32_t leases = 0;
};

/// A copy that is not in the directory any more: its place is the caller's to use again.
struct FreedCopy {
  ChunkKey key = {};
  Tier tier = Tier::host;
  std::uint64_t place = 0;
  std::uint64_t bytes = 0;
  TenantId tenant = {};
  bool was_last = false;  ///< no other tier has the chunk
};

/// A chunk with a published copy in a tier at least.
struct StoredChunk {
  TenantId tenant = {};     ///< that stored it first, and whose quotas count it
  std::uint32_t uses = 0;   ///< when it was stored first, and at each look-up; 255 = or more
  TimePoint last_use = {};  ///< rounded down to a multiple of 2^28 ns, about a quarter second
  std::array<std::optional<StoredCopy>, stored_tier_count> copies = {};  ///< host, nvme, remote
};

/// Bytes and copies of a tier, of all tenants or of one. A tier's memory in use is resident plus
/// in_flight.
struct TierGauges {
  std::uint64_t resident = 0;   ///< published
  std::uint64_t pinned = 0;     ///< the part of resident that is pinned
  std::uint64_t in_flight = 0;  ///< reserved and not published, or dropped and still leased
  std::uint64_t copies = 0;     ///< that are resident
  bool operator==(const TierGauges&) const = default;
};

}  // namespace terrace::tiers
