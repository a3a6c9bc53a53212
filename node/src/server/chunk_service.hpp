// The chunks of a node for the threads that may wait: a library, with tenants that see their own
// chunks alone, quotas, and manifests kept in memory.
//
// A key that a client names becomes another one, made of it and of the tenant's salt: whatever keys
// a client knows, it reaches chunks of its own salt and no others, also after the daemon was
// restarted. Without a salt keys stay as they are.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "protocol/messages.hpp"
#include "terrace/core/clock.hpp"
#include "terrace/node/daemon.hpp"
#include "terrace/tiers/chunk_library.hpp"

namespace terrace::node {

/// A user of the daemon, by its salt.
struct Tenant {
  tiers::TenantId number = {};
  std::string digest = {};  ///< SHA-256 of the salt, as hexadecimal digits; empty without a salt

  /// Returns how lines of the log name it.
  [[nodiscard]] std::string name() const { return digest.empty() ? "none" : digest.substr(0, 16); }
};

/// Manifests that were read, of chunks that were used last.
///
/// Threads  safe from any thread
class ManifestCache {
 public:
  [[nodiscard]] std::shared_ptr<const tiers::Manifest> find(const tiers::ChunkKey& key);
  void keep(const tiers::Manifest& manifest);
  void forget(const tiers::ChunkKey& key);

 private:
  using Entries = std::list<std::shared_ptr<const tiers::Manifest>>;

  std::mutex mutex_;
  Entries entries_;  ///< the one used last first
  std::map<tiers::ChunkKey, Entries::iterator> by_key_;
  std::uint64_t parts_ = 0;  ///< of all of them
};

/// Threads  safe from any thread
class ChunkService final : private tiers::TenantLimits {
 public:
  ChunkService(std::shared_ptr<tiers::ChunkLibrary> library, const Clock& clock,
               const TenantQuotas& quotas);
  ~ChunkService() override { library_->limit_tenants(nullptr); }

  [[nodiscard]] Result<Tenant> tenant_of(const std::string& salt);
  /// Returns the key of a tenant's chunk in the library. Errors: those of tiers::key_after.
  [[nodiscard]] static Result<tiers::ChunkKey> key_of(const Tenant& tenant,
                                                      const tiers::ChunkKey& key);

  /// Errors   those of key_of(); errors of the file are misses
  [[nodiscard]] Result<tiers::LookUp> find(const Tenant& tenant, const wire::Find& find);
  /// As find(), if it can be told from memory: nothing, and nothing is counted, if it cannot. It
  /// waits neither for the file nor for servers.
  [[nodiscard]] Result<std::optional<tiers::LookUp>> find_in_memory(const Tenant& tenant,
                                                                    const wire::Find& find);
  /// Chunks of a list of keys that are there.
  struct LeasedChunks {
    tiers::LookUp look_up = {};  ///< its run are these chunks
    std::vector<std::uint32_t> numbers = {};
  };
  /// Leases and uses those of the chunks that are there and can be read, and counts nothing. Stops
  /// before their manifests would take more than `bytes_max`. Errors: those of key_of().
  [[nodiscard]] Result<LeasedChunks> lease_all(const Tenant& tenant, const wire::Lease& lease,
                                               std::uint64_t bytes_max);
  /// Returns the memory that a copy of a manifest takes.
  [[nodiscard]] static std::uint64_t bytes_in_memory(const tiers::Manifest& chunk) noexcept {
    return sizeof chunk + chunk.parts().size() * sizeof(tiers::Part);
  }
  [[nodiscard]] Result<std::vector<Result<std::vector<std::byte>>>> read(
      std::span<const tiers::PartOfChunk> parts) {
    return library_->read_parts(parts);
  }
  /// Leases a chunk, by its key in the library, if it is there.
  [[nodiscard]] tiers::ChunkLease lease(const Tenant& tenant, const tiers::ChunkKey& key);
  /// Returns the bytes of a leased chunk. Errors: those of ChunkLibrary::manifest.
  [[nodiscard]] Result<std::uint64_t> bytes_of(const tiers::ChunkKey& key);

  struct Publication {
    const Tenant& tenant;
    tiers::Digest root = {};
    tiers::ChunkKey key = {};  ///< in the library
    std::uint32_t tokens = 0;
  };
  struct PublishedChunk {
    tiers::Published state = {};
    tiers::ChunkLease lease = {};
  };
  /// Writes a chunk. A tenant that is at its quota evicts its own chunks first.
  ///
  /// Errors   out_of_memory: the quota, or the file; those of ChunkLibrary::publish
  [[nodiscard]] Result<PublishedChunk> publish(const Publication& chunk,
                                               std::vector<tiers::PartBytes> parts);

  void set_quotas(const TenantQuotas& quotas);
  /// Evicts chunks of tenants that have more than their quotas.
  void enforce_quotas();

  [[nodiscard]] tiers::ChunkCounters counters() const { return library_->counters(); }
  [[nodiscard]] tiers::RemoteCounters remote_counters() const {
    return library_->remote_counters();
  }
  [[nodiscard]] StoreUsage usage() const { return library_->store()->usage(); }
  [[nodiscard]] StoreHealth health() const { return library_->store()->health(); }
  [[nodiscard]] std::uint64_t tenants() const;

 private:
  struct Account {
    std::string digest;
    std::uint64_t quota = TenantQuotas::no_limit;
    std::uint64_t under_way = 0;  ///< bytes that are being written
  };
  [[nodiscard]] static Result<std::vector<tiers::ChunkKey>> keys_of(
      const Tenant& tenant, std::span<const tiers::ChunkKey> keys);
  /// Returns the manifest of a leased chunk, from memory if it is there.
  [[nodiscard]] Result<std::shared_ptr<const tiers::Manifest>> manifest(const tiers::ChunkKey& key);
  /// A tenant that is at its quota evicts its own chunks. Errors: out_of_memory: the quota.
  [[nodiscard]] Status take(tiers::TenantId tenant, std::uint64_t bytes) override;
  void give_back(tiers::TenantId tenant, std::uint64_t bytes) noexcept override;

  const std::shared_ptr<tiers::ChunkLibrary> library_;
  const Clock& clock_;
  ManifestCache manifests_;
  mutable std::mutex mutex_;  ///< not held while the library is asked
  TenantQuotas quotas_;
  std::map<tiers::TenantId, Account> accounts_;
};

}  // namespace terrace::node
