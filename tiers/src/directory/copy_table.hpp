// Copies of chunks: their states, the lists that replacement goes by, and the gauges that count
// them.
//
//   reserved -> resident -> leaving      in flight | resident (listed unless pinned) | in flight
#pragma once

#include <array>

#include "chunk_table.hpp"

namespace terrace::tiers {

/// Returns the number of a tier from the host down, from 0. The device has none below
/// stored_tier_count.
[[nodiscard]] inline std::size_t number_of(Tier tier) noexcept {
  return static_cast<std::size_t>(tier) - static_cast<std::size_t>(Tier::host);
}

class CopyTable {
 public:
  using Pool = RecordPool<CopyRecord, &CopyRecord::newer>;

  CopyTable(Pool pool, Header& header, std::span<TenantRecord> tenants,
            const ChunkTable& chunks) noexcept
      : pool_(pool), header_(&header), tenants_(tenants), chunks_(chunks) {}

  [[nodiscard]] CopyRecord& operator[](RecordNumber number) const noexcept { return pool_[number]; }
  [[nodiscard]] const Pool& pool() const noexcept { return pool_; }
  [[nodiscard]] CopyHandle handle_of(RecordNumber number) const noexcept {
    return {.copy = number, .generation = pool_[number].generation};
  }
  /// Whether there is such a copy, and it has that state.
  [[nodiscard]] bool has_state(RecordNumber number, CopyState state) const noexcept {
    return number != no_record && static_cast<CopyState>(pool_[number].state) == state;
  }
  /// Returns the copy that a handle names if it has that state; no_record otherwise.
  [[nodiscard]] RecordNumber find(CopyHandle handle, CopyState state) const noexcept;

  [[nodiscard]] TenantRecord& tenant_of(const CopyRecord& copy) const noexcept {
    return tenants_[chunks_[copy.chunk].tenant];
  }

  /// Adds a reserved copy to a chunk that has none in this tier; no_record where there is no room.
  [[nodiscard]] RecordNumber reserve(RecordNumber chunk, std::size_t tier,
                                     std::uint64_t bytes) noexcept;
  void publish(RecordNumber number, const PublishedCopy& published) noexcept;
  /// Has a resident copy leave: nobody finds it, and its bytes are still there.
  void drop(RecordNumber number) noexcept;
  /// Takes a copy of any state out, also of its chunk. Handles of it are stale from now on.
  void erase(RecordNumber number) noexcept;

  void pin(RecordNumber number) noexcept;
  void unpin(RecordNumber number) noexcept;
  /// Makes a resident copy the newest of its list, if it is in one.
  void use(RecordNumber number) noexcept;

 private:
  void push_newest(ListEnds& list, RecordNumber number) noexcept;
  void remove(ListEnds& list, RecordNumber number) noexcept;
  [[nodiscard]] ListEnds& list_of(const CopyRecord& copy) const noexcept {
    return tenant_of(copy).lists[copy.tier];
  }
  [[nodiscard]] std::array<TierGauges*, 2> gauges_of(const CopyRecord& copy) const noexcept {
    return {&header_->gauges[copy.tier], &tenant_of(copy).gauges[copy.tier]};
  }
  void leave_residents(RecordNumber number) noexcept;

  Pool pool_;
  Header* header_;
  std::span<TenantRecord> tenants_;
  ChunkTable chunks_;
};

}  // namespace terrace::tiers
