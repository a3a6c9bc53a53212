// Everything that the sessions of a daemon share. All of it is the server's thread's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "chunk_service.hpp"
#include "memory/part_pool.hpp"
#include "terrace/node/daemon.hpp"
#include "workers.hpp"

namespace terrace::node {

class Session;

/// Pinned chunks: each is leased by the daemon until it was unpinned as often as pinned.
class PinnedChunks {
 public:
  explicit PinnedChunks(std::uint64_t bytes_max) noexcept : bytes_max_(bytes_max) {}

  /// Errors   out_of_memory: the tenant has as many bytes pinned as it may
  [[nodiscard]] Status pin(const Tenant& tenant, const tiers::ChunkKey& key, std::uint64_t bytes,
                           tiers::ChunkLease lease);
  /// Errors   invalid_argument: it is not pinned
  [[nodiscard]] Status unpin(const Tenant& tenant, const tiers::ChunkKey& key);
  [[nodiscard]] std::uint64_t bytes() const noexcept;

 private:
  struct Pin {
    tiers::ChunkLease lease;
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
  };
  using Key = std::pair<std::string, tiers::ChunkKey>;  ///< digest of the salt, key in the library

  std::uint64_t bytes_max_;
  std::map<Key, Pin> pins_;
  std::map<std::string, std::uint64_t> bytes_of_;
};

struct ServerCounters {
  std::uint64_t connections = 0;
  std::uint64_t refused = 0;
  std::uint64_t requests = 0;
  std::uint64_t failed = 0;  ///< requests that were answered by an error
  std::uint64_t parts_read = 0;
  std::uint64_t parts_from_memory = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t published = 0;
  std::uint64_t leases_expired = 0;
  std::uint64_t mass_samples = 0;  ///< of clients' steps
  std::uint64_t mass_millionths = 0;
};

struct NodeState {
  const DaemonOptions& options;
  const Clock& clock;
  ChunkService& chunks;
  PartPool& pool;
  PinnedChunks pins;
  std::uint64_t instance = 0;
  bool is_draining = false;  ///< no request is taken any more
  ServerCounters counters = {};
  std::map<std::uint64_t, std::shared_ptr<Session>> sessions = {};
  std::uint64_t next_number = 1;  ///< of sessions, leases, reservations
  Workers workers = {};           ///< first to go: jobs use what stands above

  void log(const std::string& line) const {
    if (options.log) options.log(line);
  }
  /// Returns a session that is there, or null.
  [[nodiscard]] Session* session(std::uint64_t number);
  /// Has clients give up segments that the pool has retired.
  void tell_retired();
  [[nodiscard]] wire::StatsReply stats() const;
};

}  // namespace terrace::node
