// Makes room for a sequence that finds no memory. The reclaimer gives up, in this order, and each
// time the sequence tries again:
//
//   memory of steps that is not under way, and on the device empty slabs of blocks
//   on the device the sequence's own blocks that its next step does not need, and copies that its
//   cache has; on the host, where there is a store below it, pages that no work reads
//   those of the other sequences, unless a call of theirs is under way
//   on the host the sequence's own pages that work reads, once that work is done
#pragma once

#include <mutex>
#include <vector>

#include "terrace/core/function_ref.hpp"
#include "terrace/core/result.hpp"

namespace terrace {

class RuntimeState;
class SequenceState;

/// Threads  any
class Reclaimer {
 public:
  explicit Reclaimer(RuntimeState& runtime) noexcept : runtime_(runtime) {}

  /// Adds a sequence: other sequences may evict its blocks from now on.
  void enter(SequenceState& sequence);
  /// Removes a sequence. Returns once no other sequence evicts its blocks any more.
  void leave(SequenceState& sequence);

  /// Tries `reserve` until it finds room, or nothing can be spared. `requester` is in a call of its
  /// own. Errors: those of `reserve`.
  Status make_room(SequenceState& requester, FunctionRef<Status()> reserve);
  /// As make_room(), but without taking anything from sequences.
  Status make_spare_room(FunctionRef<Status()> reserve);
  /// Gives up what exceeds a tier's limit, as far as sequences can spare it. Errors: out_of_memory
  /// where more stays in use.
  Status shrink(Tier tier);

 private:
  /// Makes a sequence give up one block that it can spare, the requester first. Returns whether
  /// there was such a block.
  bool spill(SequenceState& requester);
  /// Makes a sequence send pages of rows to the store below the host, the requester first. Errors:
  /// those of the store; out_of_memory where no page can leave.
  Status send_rows_away(SequenceState& requester);
  /// Calls for sequences in no call of theirs until `take` returns true, and returns whether it
  /// did.
  bool take_from_other(const SequenceState* requester, FunctionRef<bool(SequenceState&)> take);
  /// Whether more of a tier is in use than its limit allows.
  [[nodiscard]] bool exceeds_limit(Tier tier) const noexcept;

  RuntimeState& runtime_;
  std::mutex mutex_;  ///< not held while anything is waited for
  std::vector<SequenceState*> sequences_;
};

}  // namespace terrace
