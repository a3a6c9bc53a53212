// A directory as plainly as its header puts it: maps that are searched from end to end. The fuzz
// test compares the real one with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "terrace/tiers/directory.hpp"

namespace terrace::tiers {

class DirectoryModel {
 public:
  enum class State : std::uint8_t { reserved, resident, leaving };
  struct Copy {
    State state = State::reserved;
    CopyHandle handle = {};
    std::uint64_t place = 0;
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;
    std::uint32_t pins = 0;
    std::uint64_t turn = 0;  ///< when it became the newest of its list
  };
  struct Chunk {
    TenantId tenant = {};
    std::uint32_t uses = 0;
    std::int64_t last_use = 0;  ///< in units of 2^28 ns
    std::map<Tier, Copy> copies;
    [[nodiscard]] bool is_there() const;
  };
  struct Gone {
    MissReason reason = MissReason::evicted;
    std::uint32_t uses = 0;
  };
  struct Lease {
    ChunkKey key = {};
    Tier tier = Tier::host;
    TimePoint until = {};
  };
  struct Place {
    ChunkKey key = {};
    Tier tier = Tier::host;
  };
  using LeaseName = std::pair<std::uint32_t, std::uint32_t>;

  explicit DirectoryModel(const DirectoryOptions& options) : options_(options) {}

  FoundRun find(const FindRequest& request);
  void amend(TenantId tenant, LookUpOutcome from, LookUpOutcome to);
  void touch(std::span<const ChunkKey> keys, TimePoint now);

  /// Returns the answer that reserve() has to give; nothing = out_of_memory.
  std::optional<Reserved::Kind> reserve(const ReserveRequest& request);
  /// Notes the handle that the directory gave.
  void name(const ReserveRequest& request, CopyHandle handle);
  Answer publish(CopyHandle handle, const PublishedCopy& published);
  Answer cancel(CopyHandle handle);
  /// Whether lease() finds a copy; the directory has room for another lease.
  bool can_lease(const LeaseRequest& request);
  void name(const LeaseRequest& request, LeaseHandle handle);
  [[nodiscard]] Answer check(LeaseHandle handle, TimePoint now) const;
  Answer end_lease(LeaseHandle handle, TimePoint now);
  Answer pin(CopyHandle handle);
  Answer unpin(CopyHandle handle);
  Answer drop(CopyHandle handle, DropReason reason);
  std::vector<FreedCopy> collect(TimePoint now);
  std::vector<FreedCopy> evict(const EvictRequest& request);

  void end_expired_leases(TimePoint now);
  [[nodiscard]] TierGauges gauges(std::optional<TenantId> tenant, Tier tier) const;
  [[nodiscard]] DirectoryUsage usage() const;
  [[nodiscard]] std::uint32_t leases_of(const ChunkKey& key, Tier tier) const;
  [[nodiscard]] const std::map<ChunkKey, Chunk>& chunks() const { return chunks_; }
  [[nodiscard]] const LookUpCounters& counters(TenantId tenant) { return counters_[tenant]; }

  // A real directory may forget what the model remembers.
  void forget(const ChunkKey& key) { gone_.erase(key); }
  void set_uses(const ChunkKey& key, std::uint32_t uses) { chunks_.at(key).uses = uses; }

  std::map<Tier, std::uint64_t> limits;
  std::map<std::pair<TenantId, Tier>, std::uint64_t> quotas;

 private:
  [[nodiscard]] std::optional<Place> find(CopyHandle handle, State state) const;
  [[nodiscard]] MissReason why_missing(const ChunkKey& key, const Digest& root) const;
  [[nodiscard]] bool has_room(const ReserveRequest& request) const;
  void use(Chunk& chunk, TimePoint now);
  FreedCopy take_out(const Place& place);
  void remember(const ChunkKey& key, MissReason reason);
  [[nodiscard]] std::optional<Place> victim(const EvictRequest& request) const;

  DirectoryOptions options_;
  std::uint64_t turn_ = 0;
  std::map<ChunkKey, Chunk> chunks_;
  std::map<ChunkKey, Gone> gone_;
  std::map<LeaseName, Lease> leases_;
  std::set<Digest> roots_;
  std::map<TenantId, LookUpCounters> counters_;
};

}  // namespace terrace::tiers
