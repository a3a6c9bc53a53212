// Makes room for a sequence that finds no memory. The reclaimer gives up, in this order, and each
// time the sequence tries again:
//
//   memory of steps that is not under way, and on the device empty slabs of blocks
//   on the device the sequence's own blocks that its next step does not need, and copies that its
//   cache has; on the host, where there is a store below it, pages that no work reads
//   those of the other sequences, unless a call of theirs is under way: first of the sequence whose
//   last step is longest ago
//   on the host the sequence's own pages that work reads, once that work is done, then those of the
//   others
//
// Memory of pages comes back by regions: for other memory, as an index's, the pages of a region
// that has few of them leave first.
//
// The pages of a sequence in a step are, after its own, those of the step's other sequences.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "host_tier.hpp"
#include "memory_pools.hpp"
#include "terrace/core/backend.hpp"
#include "terrace/core/function_ref.hpp"

namespace terrace {

/// The memory that lacks on the host.
enum class HostRoom : std::uint8_t {
  any,
  pages,  ///< of rows: each page that leaves is room
};

/// Pages that are to leave the host.
struct RowsToSend {
  bool patient = false;                   ///< waits for work that reads some
  std::optional<std::uint32_t> region{};  ///< all that lie there; none = a batch
};

/// A sequence, as others see it that look for memory. They hold its mutex while they take some.
class MemoryHolder {
 public:
  MemoryHolder(const MemoryHolder&) = delete;
  MemoryHolder& operator=(const MemoryHolder&) = delete;
  virtual ~MemoryHolder() = default;

  /// Whether it is in no call and no step.
  [[nodiscard]] virtual bool is_idle() const noexcept = 0;
  /// Gives up the oldest device block that no step needs; waits until work that uses the layer's
  /// blocks is done. Returns whether there was one.
  virtual bool spill_one() = 0;

  /// Whether no step is under way that will read pages.
  [[nodiscard]] virtual bool may_send_rows_away() const noexcept = 0;
  /// Sends pages that no work reads to the store below the host. Returns how many have left.
  /// Errors: those of the store.
  virtual Result<std::size_t> send_rows_away(const RowsToSend& rows) = 0;

  std::mutex mutex;  ///< held by every call of the sequence

 protected:
  MemoryHolder() = default;

 private:
  friend class Reclaimer;
  std::uint64_t last_used_ = 0;  ///< by the reclaimer's count
};

/// Threads  any
class Reclaimer {
 public:
  Reclaimer(Backend& backend, MemoryPools& pools, HostTier& host) noexcept
      : backend_(backend), pools_(pools), host_(host) {}

  /// Adds a sequence: other sequences may evict its blocks from now on.
  void enter(MemoryHolder& sequence);
  /// Removes a sequence. Returns once no other sequence evicts its blocks any more.
  void leave(MemoryHolder& sequence);
  /// A sequence is used: others give up memory before it does.
  void note_use(MemoryHolder& sequence);

  /// Tries `reserve` until it finds room, or nothing can be spared. `requester` is in a call of its
  /// own. Errors: those of `reserve`.
  Status make_room(MemoryHolder& requester, FunctionRef<Status()> reserve,
                   HostRoom room = HostRoom::any);
  /// Returns a device block, taking one from a sequence that can spare it where memory has run out.
  /// Errors: out_of_memory naming the limit and what to do.
  Result<std::byte*> take_block(MemoryHolder& requester);
  /// As make_room(), but without taking anything from sequences.
  Status make_spare_room(FunctionRef<Status()> reserve);
  /// Gives up what exceeds a tier's limit, as far as sequences can spare it. Errors: out_of_memory
  /// where more stays in use.
  Status shrink(Tier tier);

 private:
  /// Makes a sequence give up one block that it can spare, the requester first. Returns whether
  /// there was such a block.
  bool spill(MemoryHolder& requester);
  /// Makes a sequence send pages of rows to the store below the host, the requester first; `room`:
  /// what lacks. Errors: those of the store; out_of_memory where no page can leave.
  Status send_rows_away(MemoryHolder& requester, HostRoom room);
  /// Has the pages of a region leave, which all can. Returns whether there was such a region.
  bool clear_region(MemoryHolder& requester);
  /// Calls for sequences in no call of theirs, those first that were used longest ago, until `take`
  /// returns true. Returns whether it did.
  bool take_from_other(const MemoryHolder* requester, FunctionRef<bool(MemoryHolder&)> take);
  /// Whether more of a tier is in use than its limit allows.
  [[nodiscard]] bool exceeds_limit(Tier tier) const noexcept;

  Backend& backend_;
  MemoryPools& pools_;
  HostTier& host_;
  std::mutex mutex_;  ///< not held while anything is waited for
  std::vector<MemoryHolder*> sequences_;
  std::uint64_t uses_ = 0;  ///< counted up
};

}  // namespace terrace
