// The chunks of a node, from a process that is not the daemon: look-ups, bytes in shared memory,
// publishing.
//
//   TERRACE_ASSIGN(auto client, DaemonClient::create({.socket = path, .salt = salt}));
//   DaemonLookUp found = client->find({.root = root, .keys = keys, .tokens = tokens});
//   TERRACE_ASSIGN(const auto parts, client->read(found.lease, {{.chunk = 0, .name = rows}}));
//   copy(*parts[0]);                                  // a part in mapped memory
//   if (!found.lease.is_live()) ...                   // then what was copied may be other bytes
//
// No call waits longer than its deadline. While the daemon is away a look-up is a miss and all else
// is not_ready at once; the client connects again with the first call after a pause, which grows.
// Leases end with the connection that they were given by.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/core/result.hpp"
#include "terrace/tiers/chunk_keeper.hpp"
#include "terrace/tiers/look_up.hpp"
#include "terrace/tiers/namespace.hpp"

namespace terrace::node {

class ClientLink;
class Mapping;
class Turn;

/// Returns the number of a user, by its name or number.
///
/// Errors   invalid_argument: there is no such user
[[nodiscard]] Result<std::uint32_t> user_number(const std::string& name);

struct DaemonClientOptions {
  std::string socket = {};                      ///< path: daemon.socket
  std::string name = {};                        ///< for the daemon's log, of at most 64 bytes
  tiers::TenantSalt salt = {};                  ///< of at most 1024 bytes
  Duration deadline = std::chrono::seconds{1};  ///< of each call
  /// Pause after the first failed connection; it doubles up to the longest.
  Duration pause_first = std::chrono::milliseconds{50};
  Duration pause_longest = std::chrono::seconds{5};
  /// The user that the daemon has to run as, so that nobody else gets the salt; empty: this
  /// process's own, or root.
  std::optional<std::uint32_t> daemon_user = {};
  const Clock* clock = nullptr;  ///< of pauses and leases; null: the steady one
};

/// A part of a chunk, without its bytes.
struct DaemonPart {
  tiers::PartName name = {};
  std::uint64_t bytes = 0;
};
struct DaemonChunk {
  tiers::ChunkKey key = {};
  std::uint32_t tokens = 0;
  std::shared_ptr<const std::vector<DaemonPart>> parts = nullptr;  ///< in the order of their names
};

/// A lease at the daemon: while it is live, chunks and the parts that were read under it stay.
/// The memory of parts stays mapped as long as this object lives, live or not.
///
/// Threads  safe from any thread, but for moving it
class DaemonLease {
 public:
  DaemonLease();
  DaemonLease(DaemonLease&&) noexcept;
  DaemonLease& operator=(DaemonLease&&) noexcept;
  /// Gives the lease back. Waits for nothing.
  ~DaemonLease();

  /// Whether the daemon still has it. Bytes that were copied before this says true are those that
  /// were asked for.
  [[nodiscard]] bool is_live() const noexcept;
  [[nodiscard]] bool is_empty() const noexcept { return state_ == nullptr; }
  /// Whether half of its time, or more, is over since its last use: DaemonClient::renew.
  [[nodiscard]] bool is_due() const noexcept;
  /// Time without a use after which the daemon ends it.
  [[nodiscard]] Duration time() const noexcept;

 private:
  friend class DaemonClient;
  struct State;
  std::shared_ptr<State> state_;
};

struct DaemonFind {
  const tiers::Digest& root;                   ///< of the namespace
  std::span<const tiers::ChunkKey> keys = {};  ///< of a prefix, from the front; 8192 at most
  std::uint64_t tokens = 0;                    ///< that the look-up asks for, as it is counted
};

struct DaemonLookUp {
  std::vector<DaemonChunk> run = {};  ///< whole chunks, from the front
  DaemonLease lease = {};             ///< of them
  tiers::LookUpOutcome outcome = tiers::LookUpOutcome::miss_late;
  std::optional<Error> error = {};  ///< why the daemon was not heard: the outcome is miss_late
};

/// Those of some chunks that are there.
struct DaemonLeased {
  std::vector<DaemonChunk> chunks = {};  ///< in the order of the keys
  DaemonLease lease = {};                ///< of them
};

struct DaemonPartRequest {
  std::uint32_t chunk = 0;  ///< number in DaemonLookUp::run
  tiers::PartName name = {};
};

/// Bytes of a part that are to be copied. `status` says whether they were.
struct DaemonCopy {
  DaemonPartRequest part = {};
  std::uint64_t offset = 0;
  std::span<std::byte> target = {};
  Status status = {};
};

struct DaemonPublish {
  const tiers::Digest& root;
  tiers::ChunkKey key = {};
  std::uint32_t tokens = 0;
};
struct DaemonPartBytes {
  tiers::PartName name = {};
  std::span<const std::byte> bytes = {};
};

/// A counter of the daemon by its name, as "look_ups.hit_nvme". docs/daemon.md lists them.
struct DaemonCounter {
  std::string name;
  std::uint64_t value = 0;
};

/// Threads  safe from any thread; calls go one after the other
class DaemonClient {
 public:
  /// Opens no connection: the first call does.
  ///
  /// Errors   invalid_argument: a path, name or salt that is too long
  [[nodiscard]] static Result<std::unique_ptr<DaemonClient>> create(
      const DaemonClientOptions& options);
  ~DaemonClient();

  /// Connects, unless it is connected.
  ///
  /// Errors   not_ready: no daemon, none in time, or a pause; unsupported: a daemon of another
  ///          version, or of a user that is not trusted
  [[nodiscard]] Status connect();

  /// Looks for the longest run of whole chunks from the front of a prefix.
  [[nodiscard]] DaemonLookUp find(const DaemonFind& request);

  /// Has parts of leased chunks brought into memory. Each span stays valid memory as long as the
  /// lease object lives, and holds the part's bytes as long as the lease is live.
  ///
  /// Errors   not_ready: the daemon is away, late, or has ended the lease. Errors of a part:
  ///          invalid_argument: no such part; corrupt, io_error: it cannot be read;
  ///          out_of_memory: the daemon's memory, or this client's share of it, is full
  [[nodiscard]] Result<std::vector<Result<std::span<const std::byte>>>> read(
      const DaemonLease& lease, std::span<const DaemonPartRequest> parts);

  /// Copies bytes of parts of leased chunks. The parts stay in the daemon's memory no longer than
  /// they are copied: spans that read() gave under the same lease are of no use afterwards.
  ///
  /// Errors   of each copy: those of read(); not_ready: the daemon is away or late, or the lease
  ///          has ended, as it says itself; its target is unspecified then
  void copy(const DaemonLease& lease, std::span<DaemonCopy> copies);

  /// Leases and uses those of some chunks that are there, 8192 at most, and counts no look-up.
  /// `brings_last`: the last one that the daemon's servers have comes up into its file first,
  /// unless it or a later one is there.
  ///
  /// Errors   not_ready: the daemon is away or late; out_of_memory: this client's limits
  [[nodiscard]] Result<DaemonLeased> lease(std::span<const tiers::ChunkKey> keys,
                                           bool brings_last = false);

  /// Has a lease end later: daemon.lease from now on. read() does so, too. Errors: not_ready.
  [[nodiscard]] Status renew(const DaemonLease& lease);

  /// Publishes a chunk, unless it is there. `lease`: the chunk is added to it, so that it stays;
  /// an empty one becomes a lease of the chunk; null: it may be evicted at once.
  ///
  /// Errors   not_ready: the daemon is away or late: the chunk may be there all the same;
  ///          out_of_memory: quota, file or this client's limits; those of Manifest::create
  [[nodiscard]] Result<tiers::Published> publish(const DaemonPublish& chunk,
                                                 std::span<const DaemonPartBytes> parts,
                                                 DaemonLease* lease);

  /// Keeps a chunk from being evicted, until it is unpinned as often or the daemon ends. Errors:
  /// invalid_argument: no such chunk, or not pinned; out_of_memory: daemon.pinned; not_ready.
  [[nodiscard]] Status pin(const tiers::ChunkKey& key);
  [[nodiscard]] Status unpin(const tiers::ChunkKey& key);

  /// Has the daemon count a sample of the attention mass, from 0 to 1, for the node's metrics.
  /// Waits for nothing. Returns whether there is a connection to do so.
  bool note_mass(double mass) noexcept;

  /// Errors   not_ready
  [[nodiscard]] Result<std::vector<DaemonCounter>> stats();

 private:
  using PartsRead = std::vector<Result<std::span<const std::byte>>>;
  explicit DaemonClient(const DaemonClientOptions& options);

  using Segments = std::map<std::uint32_t, std::shared_ptr<const Mapping>>;
  /// As read(), within a call that has begun; `segments`: in which the parts lie.
  [[nodiscard]] Result<PartsRead> read_now(Turn& turn, const DaemonLease& lease,
                                           std::span<const DaemonPartRequest> parts,
                                           Segments& segments);

  std::shared_ptr<ClientLink> link_;
};

}  // namespace terrace::node
