// The daemon of the node as the keeper of a runtime's chunks: what one process has published, all
// of them find.
//
//   TERRACE_ASSIGN(auto chunks, DaemonChunks::create({.client = {.socket = path}}));
//   const tiers::LookUp found = chunks->find_run({.root = root, .keys = keys}, tokens);
//   // found.lease.held()->store() has the parts of found.run, as long as the lease is live
//
// Parts stay with the daemon until they are read. Leases are renewed as long as they are held. A
// daemon that is away, stands still or has been restarted makes look-ups miss, which wait no longer
// than their deadline; what was leased then cannot be read any more, and says so. The first call
// after a pause finds the daemon again.
//
// Each tenant has connections of its own: one for look-ups and reading, so that it does not wait
// behind a chunk that is being written, and one for publishing.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "terrace/node/daemon_client.hpp"
#include "terrace/tiers/chunk_keeper.hpp"

namespace terrace::node {

class LeasedParts;
class LeaseKeeper;

struct DaemonChunksOptions {
  DaemonClientOptions client = {};  ///< without a salt; its deadline: of look-ups
  Duration writing_deadline = std::chrono::seconds{60};  ///< of publishing a chunk
};

/// Counters are of this object's look-ups; what is stored and evicted, the daemon counts.
///
/// Threads  safe from any thread
class DaemonChunks final : public tiers::ChunkKeeper {
 public:
  /// Opens no connection.
  ///
  /// Errors   those of DaemonClient::create
  [[nodiscard]] static Result<std::shared_ptr<DaemonChunks>> create(
      const DaemonChunksOptions& options);
  ~DaemonChunks() override;

  [[nodiscard]] Result<tiers::TenantId> tenant_of(const tiers::TenantSalt& salt) override;
  [[nodiscard]] tiers::LookUp find_run(const tiers::FindRequest& request,
                                       std::uint64_t tokens) override;
  void amend(tiers::LookUp& look_up, std::size_t usable, tiers::MissReason why) override;
  [[nodiscard]] Result<std::optional<tiers::LeasedChunk>> find_last(
      const tiers::FindRequest& request) override;
  [[nodiscard]] Result<tiers::ChunkLease> lease(const tiers::FindRequest& request) override;
  void touch(const tiers::FindRequest& request) override;
  /// Errors   not_ready: the daemon is away or late, and the chunk may be there all the same; those
  ///          of DaemonClient::publish
  [[nodiscard]] Result<tiers::Published> publish(const tiers::PublishRequest& request,
                                                 std::vector<tiers::PartBytes> parts,
                                                 tiers::ChunkLease& lease) override;
  void note_mass(double mass) noexcept override;
  [[nodiscard]] tiers::ChunkCounters counters() const override;

  /// Renews the leases that are due: half of their time is over. A thread does so, too: this is for
  /// after a clock of tests was moved.
  void renew_leases();

 private:
  class Held;
  enum class Use : std::uint8_t { finding, publishing };
  using Client = std::shared_ptr<DaemonClient>;
  struct Tenant {
    tiers::TenantSalt salt;
    Client finding = nullptr;
    Client publishing = nullptr;
    std::uint64_t used = 0;  ///< when it was used last, counted
  };

  explicit DaemonChunks(const DaemonChunksOptions& options);
  [[nodiscard]] Result<Client> make_client(const tiers::TenantSalt& salt, Use use) const;
  /// Returns the client of a tenant that tenant_of() has named.
  [[nodiscard]] Client client_of(tiers::TenantId tenant, Use use);
  /// With the mutex: closes the clients of the tenant that was used longest ago, if many are open.
  void close_others(const Tenant& used);
  /// Makes a lease of the daemon's one of the runtime's.
  [[nodiscard]] tiers::ChunkLease keep(Client client, DaemonLease lease,
                                       std::span<const DaemonChunk> chunks, Use use);
  void count(const tiers::LookUp& look_up, std::uint64_t tokens);

  const DaemonChunksOptions options_;
  mutable std::mutex mutex_;
  std::vector<Tenant> tenants_;
  std::map<std::string, tiers::TenantId> numbers_;  ///< by their salts
  std::uint64_t uses_ = 0;
  tiers::ChunkCounters counters_;
  const std::unique_ptr<LeaseKeeper> leases_;
};

}  // namespace terrace::node
