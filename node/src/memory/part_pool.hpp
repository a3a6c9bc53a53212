// Parts of chunks in shared memory: a cache over a library, and the memory that clients read.
//
// The memory is segments of one tenant each, so that a client that maps a segment sees its own
// tenant's parts and no others; a tenant is named by the digest of its salt. A segment that another
// tenant needs is not handed on: it is retired, and a new one takes its place.
//
//   TERRACE_ASSIGN(PooledPart* const part, pool.add(key, tenant, bytes));  // loading
//   pool.hold(*part);
//   fill(pool.memory_of(*part));
//   pool.settle(*part, {});                                                // ready
//   ...
//   pool.let_go(*part);                                                    // may be evicted
//
// Parts that nobody holds are evicted in the order in which they were let go. A tenant that finds
// no room takes a segment from one that has more of them, and evicts its own parts otherwise.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "free_places.hpp"
#include "memory_file.hpp"
#include "terrace/tiers/part.hpp"

namespace terrace::node {

/// A chunk that went may come again with other bytes: the checksum tells them apart.
struct PartKey {
  tiers::ChunkKey chunk = {};
  tiers::PartName part = {};
  std::uint64_t checksum = 0;
  auto operator<=>(const PartKey&) const = default;
};

/// Memory of one tenant. Its number is never used again.
struct PoolSegment {
  PoolSegment(std::uint32_t its_number, std::string its_tenant, MemoryFile its_file,
              Mapping its_mapping)
      : number(its_number),
        tenant(std::move(its_tenant)),
        file(std::move(its_file)),
        mapping(std::move(its_mapping)),
        places(file.bytes()) {}

  const std::uint32_t number;
  const std::string tenant;
  const MemoryFile file;
  const Mapping mapping;
  FreePlaces places;
  std::uint64_t holders = 0;  ///< of its parts
};

struct PooledPart {
  PartKey key = {};
  std::shared_ptr<PoolSegment> segment = nullptr;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  std::uint64_t holders = 0;
  bool is_ready = false;
  /// Called once, when loading has ended, well or not.
  std::vector<std::function<void(const Status&)>> waiting = {};
  std::list<PooledPart*>::iterator place_in_list = {};  ///< where nobody holds it
};

struct PartPoolOptions {
  std::uint64_t bytes = 0;
  PageSize pages = PageSize::usual;
  bool lock = false;  ///< mlock
};

struct PoolCounters {
  std::uint64_t bytes = 0;  ///< of segments
  std::uint64_t parts = 0;
  std::uint64_t part_bytes = 0;
  std::uint64_t held_bytes = 0;
  std::uint64_t evicted = 0;
  std::uint64_t segments_retired = 0;
};

/// Threads  one at a time; memory_of() is filled by any thread
class PartPool {
 public:
  explicit PartPool(const PartPoolOptions& options);
  PartPool(const PartPool&) = delete;
  PartPool& operator=(const PartPool&) = delete;

  /// Makes a segment and gives it up, so that memory that cannot be had is known at once.
  [[nodiscard]] Status try_out();

  /// Returns a part that is there or loading, or null.
  [[nodiscard]] PooledPart* find(const PartKey& key);
  /// Adds a part that is not there. Its loader holds it until settle().
  ///
  /// Errors   out_of_memory: too large for the pool, or all that is there is held
  [[nodiscard]] Result<PooledPart*> add(const PartKey& key, const std::string& tenant,
                                        std::uint64_t bytes);
  /// The memory of a part that is loading, for writing.
  [[nodiscard]] static std::span<std::byte> memory_of(const PooledPart& part) noexcept;
  /// Ends loading: those who wait hear of it, and then the loader lets the part go. A part whose
  /// bytes did not come is gone then; those who hold it let it go when they hear of it.
  void settle(PooledPart& part, const Status& loaded);

  void hold(PooledPart& part);
  void let_go(PooledPart& part);

  /// Numbers of segments that were retired since the last call.
  [[nodiscard]] std::vector<std::uint32_t> take_retired();
  [[nodiscard]] const PoolCounters& counters() const noexcept { return counters_; }

 private:
  struct Tenant {
    std::vector<std::shared_ptr<PoolSegment>> segments;
    std::list<PooledPart*> free;  ///< that nobody holds, those first that were let go first
  };
  struct Place {
    std::shared_ptr<PoolSegment> segment;
    std::uint64_t offset = 0;
  };

  [[nodiscard]] Result<Place> find_place(const std::string& tenant, std::uint64_t bytes);
  [[nodiscard]] static std::optional<Place> place_in(const Tenant& tenant, std::uint64_t bytes);
  [[nodiscard]] Result<std::shared_ptr<PoolSegment>> make_segment(const std::string& tenant,
                                                                  std::uint64_t bytes);
  /// Retires segments of tenants that have more than one with so many, until so many bytes may be
  /// taken. Returns whether they may.
  bool retire_for(const std::string& tenant, std::uint64_t bytes);
  void retire(const std::shared_ptr<PoolSegment>& segment);
  /// Retires a segment without a part that is held: one that is larger may be needed. Returns
  /// whether there was one.
  bool retire_idle(const Tenant& tenant);
  [[nodiscard]] tl::unexpected<Error> no_room_for(std::uint64_t bytes) const;
  void erase(PooledPart& part);

  const PartPoolOptions options_;
  std::uint64_t segment_bytes_ = 0;
  std::uint32_t next_number_ = 1;
  std::map<std::string, Tenant> tenants_;
  std::map<PartKey, std::unique_ptr<PooledPart>> parts_;
  std::vector<std::uint32_t> retired_;
  PoolCounters counters_;
};

}  // namespace terrace::node
