// A library: the chunks that a store keeps, bounded by the store's room, and accounted for.
// All users of a store's chunks in a process share the one library of that store.
//
//   TERRACE_ASSIGN(auto library, ChunkLibrary::share({.store = store, .deadline = deadline}));
//   const LookUp found = library->find_run({.root = root, .keys = keys, .now = now}, tokens);
//   ...  // as long as found.lease lives, the pages of found.run stay where they are
//   TERRACE_TRY(library->publish({.root = root, .key = key, .tokens = 256, .now = now}, parts,
//                                lease));
//
// A chunk that finds no room evicts others, as a whole: those that were used longest ago first, the
// end of a prefix before its beginning. Chunks with a lease stay. Chunks are a cache: rows that
// are nowhere else take room in the store from them (make_room).
//
// Each look-up is counted in one way: as it ended. A chunk that turns out to be damaged or gone is
// dropped, so that the next look-up is a miss and not the same failure again. An error that may
// pass, of the device or of a deadline, drops nothing.
//
// A library may have a lower store, as on another machine: chunks that are published go to it, too,
// behind everybody's back; look-ups ask it for chunks that are not here, and bring them up. A lower
// store that fails makes look-ups miss what is not here, and costs them no more than its deadline.
//
// The library knows its chunks by a directory in memory. Where a file was opened with it
// (open_file), it has read which chunks are there; of another store it asks the store for chunks
// that it does not know.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "terrace/offload/tier_store.hpp"
#include "terrace/tiers/chunk_keeper.hpp"
#include "terrace/tiers/remote_chunks.hpp"

namespace terrace::tiers {

class ChunkCatalogue;
class ChunkLibrary;
class TenantNumbers;

struct ChunkLibraryOptions {
  std::shared_ptr<Store> store = nullptr;  ///< open_file() sets it
  Duration deadline{};                     ///< of each batch of the store
  /// Chunks that the directory has places for, at 130 bytes each; 0 = by the pages that the store
  /// may have, 65,536 at most. More chunks evict each other.
  std::uint64_t chunks_max = 0;
  std::uint64_t seed = 0;  ///< DirectoryOptions::seed
  /// Chunks of a lower store; null = none. A library that the process has already takes them if it
  /// has none.
  std::shared_ptr<RemoteChunks> remote = nullptr;
};

/// Returns the manifest of a chunk that a caller has read before, or null.
using KnownManifests = FunctionRef<const Manifest*(const ChunkKey&)>;

/// Says how many bytes of a library's store each tenant may have.
///
/// Threads  safe from any thread
class TenantLimits {
 public:
  TenantLimits() = default;
  TenantLimits(const TenantLimits&) = delete;
  TenantLimits& operator=(const TenantLimits&) = delete;
  virtual ~TenantLimits() = default;

  /// Makes room for bytes that are about to be written. They count until give_back(), which comes
  /// once they have a place in the store, or will have none. Errors: out_of_memory.
  [[nodiscard]] virtual Status take(TenantId tenant, std::uint64_t bytes) = 0;
  virtual void give_back(TenantId tenant, std::uint64_t bytes) noexcept = 0;
};

/// Times are of one clock. Tokens of a request are those that the caller counts.
///
/// Threads  safe from any thread
class ChunkLibrary final : public ChunkKeeper, public std::enable_shared_from_this<ChunkLibrary> {
 public:
  /// Returns the library of a store: the one that the process has, or a new one.
  ///
  /// Errors   invalid_argument: no store
  [[nodiscard]] static Result<std::shared_ptr<ChunkLibrary>> share(
      const ChunkLibraryOptions& options);

  /// Opens the store of a file, or shares it, with its library. Where the file is opened, the
  /// chunks that it has are found, and pages of no whole chunk are erased: a process that ended
  /// amid a publish() left them.
  ///
  /// Errors   those of open_tier_store; not_ready: manifests could not be read by the deadline
  /// Cost     reads the manifest of each chunk
  [[nodiscard]] static Result<std::shared_ptr<ChunkLibrary>> open_file(
      const offload::TierStoreOptions& file, ChunkLibraryOptions options);

  /// Returns the library that the process has of a store now, or null.
  [[nodiscard]] static std::shared_ptr<ChunkLibrary> of(const Store& store);

  ~ChunkLibrary() override;

  [[nodiscard]] const std::shared_ptr<Store>& store() const noexcept { return store_; }

  /// 0 is that of the empty salt; after 1,023 others, tenants share the last number.
  [[nodiscard]] Result<TenantId> tenant_of(const TenantSalt& salt) override;

  /// Chunks that the store lacks, and the lower store has, are brought up first: one after the
  /// other, none after the lower store's deadline, or after one that took longer than to compute
  /// its tokens. The store is not asked for chunks from the front whose manifests are known:
  /// reading their parts shows damage.
  [[nodiscard]] LookUp find_run(const FindRequest& request, std::uint64_t tokens) override;
  [[nodiscard]] LookUp find_run(const FindRequest& request, std::uint64_t tokens,
                                KnownManifests known);
  /// The same, if no lower store has to be asked: nothing, and nothing is counted, if one has to.
  [[nodiscard]] std::optional<LookUp> find_run_here(const FindRequest& request,
                                                    std::uint64_t tokens, KnownManifests known);
  /// Chunks come up from the lower store within these limits; null = without any. They have to live
  /// until they are replaced, and no look-up is under way.
  void limit_tenants(TenantLimits* limits);
  void amend(LookUp& look_up, std::size_t usable, MissReason why) override;

  /// The last of the chunks that the lower store has is brought up, unless it or a later one is
  /// here.
  [[nodiscard]] Result<std::optional<LeasedChunk>> find_last(const FindRequest& request) override;
  /// Brings up the last of the chunks that the lower store has, unless it or a later one is here.
  void bring_last(const FindRequest& request);
  [[nodiscard]] Result<ChunkLease> lease(const FindRequest& request) override;
  void touch(const FindRequest& request) override;

  /// Returns the manifest of a leased chunk. A chunk that is not whole is dropped. Errors: those of
  /// ChunkRun::end; not_ready past the deadline.
  [[nodiscard]] Result<Manifest> manifest(const ChunkKey& chunk);
  /// Returns the bytes of a part of a leased chunk. A damaged chunk is dropped. Errors: those of
  /// ChunkStore::read.
  [[nodiscard]] Result<std::vector<std::byte>> read(const Manifest& manifest, const Part& part);
  /// Returns the bytes of parts of leased chunks, read at once. Damaged chunks are dropped. Errors:
  /// those of ChunkStore::read_parts.
  [[nodiscard]] Result<std::vector<Result<std::vector<std::byte>>>> read_parts(
      std::span<const PartOfChunk> parts);

  /// A chunk that was written goes to the lower store, too, without a wait. Look-ups of a chunk
  /// that found no room say so.
  [[nodiscard]] Result<Published> publish(const PublishRequest& request,
                                          std::vector<PartBytes> parts, ChunkLease& lease) override;

  /// Drops a chunk that could not be read, if it is damaged or gone: look-ups do not find it from
  /// now on, and its pages are erased with the last lease. Other errors change nothing.
  void drop(const ChunkKey& chunk, const Error& why);

  /// Evicts chunks, of one tenant or of all, until so many bytes are free, and waits until they
  /// are. Returns their bytes: 0 where nothing is left to evict.
  std::uint64_t make_room(std::uint64_t bytes, std::optional<TenantId> tenant = {});

  [[nodiscard]] ChunkCounters counters() const override;
  [[nodiscard]] RemoteCounters remote_counters() const;
  /// Returns the bytes of a tenant's chunks.
  [[nodiscard]] TierGauges gauges(TenantId tenant) const;

 private:
  class Held;
  ChunkLibrary(const ChunkLibraryOptions& options, std::unique_ptr<ChunkCatalogue> catalogue);

  static Result<std::shared_ptr<ChunkLibrary>> make(const ChunkLibraryOptions& options);
  /// Takes up what the pages of a file are.
  Status take_stock(std::span<const PageKey> pages);
  /// Asks the store for chunks that the directory does not know. Returns why one of them may be
  /// there all the same. Errors: not_ready past the deadline.
  Result<std::optional<Error>> learn(const FindRequest& request);
  /// Chunks that a look-up had brought up.
  struct Brought {
    ChunkLease lease = {};  ///< of them, and of those that were here
    std::uint64_t chunks = 0;
    std::optional<Error> late = {};  ///< why there may be more
  };
  [[nodiscard]] std::shared_ptr<RemoteChunks> remote() const;
  [[nodiscard]] TenantLimits* limits() const;
  void attach(const std::shared_ptr<RemoteChunks>& remote);
  [[nodiscard]] Brought bring_run(const FindRequest& request);
  [[nodiscard]] LookUp look_up(const FindRequest& request, std::uint64_t tokens,
                               KnownManifests known, const Result<std::optional<Error>>& learned,
                               const Brought& brought);
  /// Brings chunks up, until one cannot be had or the time is over.
  void bring_all(RemoteChunks& lower, const FindRequest& request, std::span<const ChunkKey> keys,
                 Brought& brought);
  /// Brings one chunk up, within its tenant's limit. Errors: those of TenantLimits::take, of
  /// RemoteChunks::read and of publish().
  [[nodiscard]] Status bring(RemoteChunks& remote, const FindRequest& request,
                             const Manifest& manifest, ChunkLease& lease);
  /// Counts bytes that come up to their tenant, until the caller gives them back. Errors: those of
  /// TenantLimits::take, which look-ups of the chunk remember.
  [[nodiscard]] Status take_room(const PublishRequest& chunk, std::uint64_t bytes);
  /// Remembers of a chunk that it is damaged in the lower store.
  void note_damage(const FindRequest& request, const ChunkKey& key);
  [[nodiscard]] Result<Published> publish_here(const PublishRequest& request,
                                               const std::shared_ptr<std::vector<PartBytes>>& parts,
                                               ChunkLease& lease);
  /// With the mutex: leases those of the chunks that the directory has.
  [[nodiscard]] ChunkLease lease_known(const FindRequest& request);
  void return_lease(std::span<const ChunkKey> chunks) noexcept;
  /// Reads the manifests of the chunks that the directory has found.
  void settle(LookUp& look_up, KnownManifests known);
  /// With the mutex: starts to erase the pages of chunks that went.
  [[nodiscard]] Result<StoreTicket> start_erasing();
  [[nodiscard]] Result<Manifest> write(const PublishRequest& request, std::uint64_t bytes,
                                       const std::shared_ptr<std::vector<PartBytes>>& parts);

  const std::shared_ptr<Store> store_;
  const Duration deadline_;
  ChunkStore chunks_;
  bool knows_all_ = false;        ///< the directory has all chunks of the store
  bool knows_namespaces_ = true;  ///< of all of them

  mutable std::mutex mutex_;
  std::shared_ptr<RemoteChunks> remote_;
  TenantLimits* limits_ = nullptr;  ///< of chunks that come up
  std::unique_ptr<ChunkCatalogue> catalogue_;
  std::unique_ptr<TenantNumbers> tenants_;
  std::uint64_t tokens_asked_ = 0;
  std::uint64_t tokens_found_ = 0;
};

}  // namespace terrace::tiers
