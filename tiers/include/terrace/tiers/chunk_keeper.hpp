// The keeper of a runtime's chunks: a library of this process, or the daemon of the node. It finds
// chunks, leases them, and takes those that are published.
//
//   const LookUp found = keeper.find_run({.root = root, .keys = keys, .now = now}, tokens);
//   ...  // as long as found.lease lives, the parts of found.run can be read
//   TERRACE_TRY(keeper.publish({.root = root, .key = key, .tokens = 256, .now = now}, parts,
//                              lease));
//   keeper.touch({.root = root, .keys = keys, .now = now});
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "terrace/tiers/chunk_lease.hpp"
#include "terrace/tiers/chunk_store.hpp"
#include "terrace/tiers/directory.hpp"
#include "terrace/tiers/namespace.hpp"

namespace terrace::tiers {

/// The result of a look-up of a prefix.
struct LookUp {
  std::vector<Manifest> run = {};  ///< of whole chunks, from the front
  ChunkLease lease = {};           ///< of them, and maybe of chunks after them
  TenantId tenant = {};
  LookUpOutcome outcome = LookUpOutcome::miss_never_stored;  ///< as it is counted
};

struct LeasedChunk {
  Manifest manifest;
  ChunkLease lease;
};

struct PublishRequest {
  const Digest& root;  ///< of the namespace
  TenantId tenant = {};
  ChunkKey key = {};
  std::uint32_t tokens = 0;  ///< Manifest::tokens
  TimePoint now = {};
};

enum class Published : std::uint8_t {
  written,
  was_there,
  /// Somebody else is writing it; or it was dropped, and those who have leases of it still read it.
  under_way,
};

struct ChunkCounters {
  LookUpCounters look_ups = {};
  std::uint64_t tokens_asked = 0;
  std::uint64_t tokens_found = 0;
  std::uint64_t evicted = 0;  ///< chunks
  TierGauges chunks = {};     ///< `in_flight` has dropped chunks that are leased, too
};

/// Times are of one clock. Tokens of a request are those that the caller counts.
///
/// Threads  safe from any thread
class ChunkKeeper {
 public:
  ChunkKeeper() = default;
  ChunkKeeper(const ChunkKeeper&) = delete;
  ChunkKeeper& operator=(const ChunkKeeper&) = delete;
  virtual ~ChunkKeeper() = default;

  /// Returns the number by which requests name the tenant with a salt. Errors: out_of_memory: the
  /// hash could not be computed, or no number is left; invalid_argument: a salt that is too long.
  [[nodiscard]] virtual Result<TenantId> tenant_of(const TenantSalt& salt) = 0;

  /// Looks for the longest run of whole chunks from the front of a prefix, and counts the look-up,
  /// which asks for so many tokens. A look-up without keys is a miss of what was never stored.
  /// Errors are misses.
  [[nodiscard]] virtual LookUp find_run(const FindRequest& request, std::uint64_t tokens) = 0;
  /// Says that only the first `usable` chunks of a look-up's run are of use: it counts as partial
  /// or, with none of them, as a miss for that reason.
  virtual void amend(LookUp& look_up, std::size_t usable, MissReason why) = 0;

  /// Leases the last of the chunks that is there, and uses it, without counting a look-up; nothing
  /// where none is there or can be read. Errors: not_ready past the deadline.
  [[nodiscard]] virtual Result<std::optional<LeasedChunk>> find_last(
      const FindRequest& request) = 0;
  /// Leases those of the chunks that are there. Errors: not_ready past the deadline.
  [[nodiscard]] virtual Result<ChunkLease> lease(const FindRequest& request) = 0;
  /// Uses the chunks of a prefix that are there: its end is evicted before its beginning.
  virtual void touch(const FindRequest& request) = 0;

  /// Writes a chunk, unless it is there, and adds it to a lease of this keeper or of nobody. Where
  /// there is no room, chunks that were used longest ago make some.
  ///
  /// Errors   out_of_memory: no room; those of ChunkStore::publish; not_ready past the deadline
  [[nodiscard]] virtual Result<Published> publish(const PublishRequest& request,
                                                  std::vector<PartBytes> parts,
                                                  ChunkLease& lease) = 0;

  /// Has a sample of the attention mass counted in the metrics of a node that has some. Waits for
  /// nothing.
  virtual void note_mass(double /*mass*/) noexcept {}

  [[nodiscard]] virtual ChunkCounters counters() const = 0;
};

}  // namespace terrace::tiers
