// The directory: which chunks the tiers below the device have, and where.
//
//   TERRACE_ASSIGN(Directory directory, Directory::create(block, {.chunks_max = 1'000'000}));
//   TERRACE_ASSIGN(const FoundRun found, directory.find({.root = root, .keys = keys, .now = now}));
//   ...
//   TERRACE_ASSIGN(const Reserved reserved, directory.reserve({.root = root, .key = key, ...}));
//   // write the bytes; once they are safe:
//   directory.publish(reserved.handle, {.place = place, .checksum = sum, .now = now});
//
// It moves no bytes, has no clock and no thread. Its whole state lies in one block of memory that
// the caller gives, as numbers of records and no pointers, so that processes which map the block at
// other addresses may open it. It never grows.
//
// Order of a chunk's copy in a tier:
//
//   reserve -> publish -> [lease, pin, look-ups] -> evict, or drop and collect
//          \-> cancel
//
// Replacement is least recently used, a list for each tenant and tier (decision 0119). find() and
// touch() use a run of keys from its end to its front, so that the end of a prefix goes first: a
// chunk without those before it is of no use. Pinned copies are in no list, leased ones are passed
// over.
//
// Why a chunk is not there is remembered in a table of fingerprints, 4 bytes for each of
// chunks_max: in groups of 8 where the oldest makes room. The last chunks_max / 2 chunks that went
// are remembered with 95 % probability each, older ones by chance. A chunk that never was there is
// taken for one that was in fewer than 1 of 10^7 look-ups.
//
// Memory   48 bytes a chunk with its share of the tables, 40 a copy, 28 a lease, 256 a tenant
// Threads  one at a time, in all processes that have the block open: the caller has a lock
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "terrace/core/clock.hpp"
#include "terrace/core/function_ref.hpp"
#include "terrace/core/result.hpp"
#include "terrace/tiers/digest.hpp"
#include "terrace/tiers/look_up.hpp"
#include "terrace/tiers/stored_copy.hpp"

namespace terrace::tiers {

struct DirectoryOptions {
  std::uint64_t chunks_max = 0;
  std::uint64_t copies_max = 0;  ///< of all tiers together; 0 = 9 / 8 of chunks_max
  std::uint64_t leases_max = 4096;
  std::uint32_t tenants_max = 64;
  std::uint64_t seed = 0;  ///< of the hash table; a random one, so that nobody can fill one place
};

struct FindRequest {
  const Digest& root;  ///< of the namespace: Namespace::digest
  TenantId tenant = {};
  std::span<const ChunkKey> keys = {};  ///< of a prefix, from the front
  TimePoint now = {};
  /// Seconds that computing one token takes; 0 = not known. Chunks that take longer are not brought
  /// from a lower store.
  double token_seconds = 0;
};

struct FoundRun {
  /// Chunks from the front that the host has; that the host or NVMe has; that any tier has.
  std::array<std::size_t, stored_tier_count> chunks = {};
  LookUpOutcome outcome = LookUpOutcome::miss_never_stored;  ///< as it was counted
};

struct ReserveRequest {
  const Digest& root;
  ChunkKey key = {};
  Tier tier = Tier::host;
  TenantId tenant = {};
  std::uint64_t bytes = 0;  ///< of the copy in this tier; at most Directory::copy_bytes_max
};

struct Reserved {
  enum class Kind : std::uint8_t {
    reserved,
    resident,   ///< the tier has the chunk: there is nothing to do
    in_flight,  ///< somebody stores it there, or it was dropped and a lease still holds it
  };
  Kind kind = Kind::reserved;
  CopyHandle handle = {};  ///< of the reservation, or of the resident copy
};

struct PublishedCopy {
  std::uint64_t place = 0;
  std::uint64_t checksum = 0;
  TimePoint now = {};
};

struct LeaseRequest {
  ChunkKey key = {};
  Tier tier = Tier::host;
  TimePoint now = {};
  TimePoint until = {};
};

struct Leased {
  LeaseHandle handle = {};
  StoredCopy copy = {};
};

struct EvictRequest {
  Tier tier = Tier::host;
  std::uint64_t bytes = 0;              ///< to be freed at least
  std::optional<TenantId> tenant = {};  ///< owner of the copies that go; empty = any tenant
  TimePoint now = {};
};

/// Why a copy is dropped: look-ups of the chunk say so afterwards.
enum class DropReason : std::uint8_t { evicted, corrupt };

struct DirectoryUsage {
  std::uint64_t chunks = 0;
  std::uint64_t copies = 0;
  std::uint64_t leases = 0;
  bool operator==(const DirectoryUsage&) const = default;
};

/// All times are of one clock, the caller's, and do not go back. A tier is host, nvme or remote and
/// a tenant below tenants_max: another one is an invalid_argument where an error can be returned,
/// and a programming error elsewhere.
class Directory {
 public:
  static constexpr std::uint64_t copy_bytes_max = (std::uint64_t{1} << 36) - 1;
  static constexpr std::uint32_t pins_max = 255;
  static constexpr std::uint64_t no_limit = ~std::uint64_t{0};

  /// Returns the bytes of the block for a directory.
  ///
  /// Errors   invalid_argument: no chunks, fewer copies than chunks, or more than 2^31 of either;
  ///          no tenants, or more than 4096; more than 2^24 leases
  [[nodiscard]] static Result<std::uint64_t> block_bytes(const DirectoryOptions& options);

  /// Makes an empty directory in a block, which must stay longer than it. No limit is set.
  ///
  /// Errors   those of block_bytes(); invalid_argument: the block is too small, or does not begin
  ///          at a multiple of 64
  [[nodiscard]] static Result<Directory> create(std::span<std::byte> block,
                                                const DirectoryOptions& options);

  /// Opens the directory that a block holds, after a check of all of it: what a process left that
  /// ended amid a call, or damage of the records, is refused. Damage of a key, a place or a
  /// checksum is not noticed.
  ///
  /// Errors   corrupt: no directory, or one that is damaged: make a new one; unsupported: one of
  ///          another version
  /// Cost     visits each record several times, in any order
  [[nodiscard]] static Result<Directory> open(std::span<std::byte> block);

  Directory(Directory&&) noexcept;
  Directory& operator=(Directory&&) noexcept;
  ~Directory();

  /// Looks a prefix up: counts it, and uses the chunks of its run. A caller that then cannot read
  /// what was found says so by amend().
  ///
  /// Errors   invalid_argument: no keys, or no such tenant; nothing is counted then
  [[nodiscard]] Result<FoundRun> find(const FindRequest& request);

  /// Counts a look-up that find() was not asked for: there was no key.
  void count(TenantId tenant, LookUpOutcome outcome) noexcept;

  /// Has a look-up that was counted as `from` count as `to`: its chunks were corrupt or late.
  /// Changes nothing where no look-up of the tenant counts as `from`.
  void amend(TenantId tenant, LookUpOutcome from, LookUpOutcome to) noexcept;

  /// Uses the chunks of a prefix that are there, as find() does, without a look-up: for sequences
  /// that go on with it. Call it once their last chunk is published.
  void touch(std::span<const ChunkKey> keys, TimePoint now);

  /// Returns what is known of a chunk; nothing where no tier has a published copy.
  [[nodiscard]] std::optional<StoredChunk> chunk(const ChunkKey& key) const;

  /// Takes room for a copy within the limits. Nobody finds it before it is published.
  ///
  /// Errors   out_of_memory: the tier, the tenant's quota or the directory is full: evict, then
  ///          retry; look-ups of the chunk say no_room otherwise. invalid_argument: no such tier or
  ///          tenant, no bytes, or too many
  [[nodiscard]] Result<Reserved> reserve(const ReserveRequest& request);

  /// Lets look-ups find a reserved copy. The caller calls it once the bytes are safe.
  [[nodiscard]] Answer publish(CopyHandle reserved, const PublishedCopy& copy);

  /// Gives a reservation up: the store failed, and leaves no key. Where a reason is given and no
  /// other tier has the chunk, look-ups of the chunk say it.
  [[nodiscard]] Answer cancel(CopyHandle reserved, std::optional<MissReason> why = {});

  /// Keeps a published copy's bytes where they are until the lease ends or expires; nothing where
  /// the tier has no published copy.
  ///
  /// Errors   invalid_argument: it ends before it begins; out_of_memory: leases_max, or 65,535 of
  ///          this copy: wait until one ends
  [[nodiscard]] Result<std::optional<Leased>> lease(const LeaseRequest& request);

  /// Whether the leased bytes may still be read. A reader asks once it has read: `stale` means that
  /// the bytes may have been others'.
  [[nodiscard]] Answer check(LeaseHandle lease, TimePoint now) const noexcept;

  /// Ends a lease. `stale`: it had expired or ended before.
  [[nodiscard]] Answer end_lease(LeaseHandle lease, TimePoint now);

  /// Keeps a published copy from being evicted, until it is unpinned as often or dropped.
  ///
  /// Errors   out_of_memory: it is pinned pins_max times
  [[nodiscard]] Result<Answer> pin(CopyHandle copy);
  /// Takes one pin back; the last one makes the copy the newest of its list. `stale`: it is not
  /// pinned, or gone.
  [[nodiscard]] Answer unpin(CopyHandle copy);

  /// Takes a published copy out, pinned or not: no look-up finds it from now on. Its bytes stay
  /// until collect() names it.
  [[nodiscard]] Answer drop(CopyHandle copy, DropReason reason);

  /// Names dropped copies that no lease holds, and forgets them. Returns their bytes. `freed` must
  /// not call the directory.
  std::uint64_t collect(TimePoint now, FunctionRef<void(const FreedCopy&)> freed);

  /// Takes copies out, those first that were used longest ago, and names each; returns their bytes,
  /// fewer than asked for where all others are leased or pinned. `freed` must not call the
  /// directory.
  std::uint64_t evict(const EvictRequest& request, FunctionRef<void(const FreedCopy&)> freed);

  /// Sets the most bytes, resident and in flight, that a tier may have, of one tenant or of all.
  /// Copies that are there stay, also those beyond the limit.
  void set_limit(Tier tier, std::uint64_t bytes) noexcept;
  void set_quota(TenantId tenant, Tier tier, std::uint64_t bytes) noexcept;

  [[nodiscard]] TierGauges gauges(Tier tier) const noexcept;
  [[nodiscard]] TierGauges gauges(TenantId tenant, Tier tier) const noexcept;
  [[nodiscard]] LookUpCounters counters() const noexcept;
  [[nodiscard]] LookUpCounters counters(TenantId tenant) const noexcept;
  [[nodiscard]] DirectoryUsage usage() const noexcept;

 private:
  class Block;
  explicit Directory(std::unique_ptr<Block> block);

  std::unique_ptr<Block> block_;
};

}  // namespace terrace::tiers
