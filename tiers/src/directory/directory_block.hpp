// The parts of a directory, as they lie in its block.
#pragma once

#include <span>
#include <vector>

#include "chunk_table.hpp"
#include "copy_table.hpp"
#include "gone_table.hpp"
#include "lease_table.hpp"
#include "terrace/core/ids.hpp"

namespace terrace::tiers {

/// Has no state but in the block, and a scratch list.
class Directory::Block {
 public:
  /// `bytes` begin with a header that is right.
  explicit Block(std::span<std::byte> bytes);

  /// A change under way: a process that ends amid one leaves it for open() to see.
  class Change {
   public:
    explicit Change(Header& header) noexcept : changes_(&header.changes) { ++*changes_; }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;
    ~Change() { ++*changes_; }

   private:
    std::uint64_t* changes_;
  };

  [[nodiscard]] bool has(TenantId tenant) const noexcept {
    return static_cast<std::size_t>(tenant) < tenants.size();
  }

  // For look-ups.
  /// Returns the number of the fastest tier that has a published copy; stored_tier_count where none
  /// has.
  [[nodiscard]] std::size_t fastest(const ChunkRecord& chunk) const noexcept;
  static void count_use(ChunkRecord& chunk) noexcept;
  /// Makes a chunk's copies the newest of their lists.
  void use(ChunkRecord& chunk, TimePoint now) noexcept;
  /// Says why nobody finds a chunk.
  [[nodiscard]] MissReason why_missing(const ChunkKey& key, const Digest& root) const noexcept;
  void note_namespace(const Digest& root) noexcept;
  void count(TenantId tenant, LookUpOutcome outcome) noexcept;

  // For copies.
  /// Errors   out_of_memory: a limit, a quota or a table has no room for these bytes
  [[nodiscard]] Status check_room(RecordNumber chunk, const ReserveRequest& request) const;
  void end_expired_leases(TimePoint now) noexcept;
  /// Takes a copy out, and its chunk if that was the last one; says what was freed.
  FreedCopy take_out(RecordNumber copy) noexcept;
  /// Erases a chunk that has no copy.
  void erase_if_empty(RecordNumber chunk) noexcept;
  [[nodiscard]] StoredCopy describe(RecordNumber copy) const noexcept;

  // For eviction.
  /// Returns the copy that goes next of the list that a search goes along; no_record where none
  /// can.
  [[nodiscard]] RecordNumber victim(TenantRecord& tenant) const noexcept;
  /// Returns the victim among several tenants: the one that was used longest ago.
  [[nodiscard]] RecordNumber victim(std::span<TenantRecord> among) const noexcept;

  /// Checks every record, for open(). Errors: corrupt.
  [[nodiscard]] Status audit() const;

  Header& header;
  std::span<TenantRecord> tenants;
  ChunkTable chunks;
  CopyTable copies;
  LeaseTable leases;
  GoneTable gone;
  std::vector<RecordNumber> run;  ///< of find()

 private:
  Block(std::span<std::byte> bytes, const BlockLayout& layout);

  // The checks of audit(), in this order: each goes by what those before have checked.
  [[nodiscard]] bool has_right_pools() const;
  [[nodiscard]] bool has_right_copies() const;
  [[nodiscard]] bool has_right_chunks() const;
  [[nodiscard]] bool has_right_leases() const;
  [[nodiscard]] bool has_right_lists() const;
  [[nodiscard]] bool has_right_counts() const;
};

}  // namespace terrace::tiers
