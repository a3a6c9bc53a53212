// Memory on behalf of one sequence, which others make room for.
#pragma once

#include "reclaimer.hpp"

namespace terrace {

/// Threads  one at a time, in a call of the sequence
class SequenceMemory {
 public:
  SequenceMemory(MemoryPools& shared_pools, HostTier& host_tier, Reclaimer& reclaimer,
                 MemoryHolder& holder) noexcept
      : pools(shared_pools), host(host_tier), reclaimer_(reclaimer), holder_(holder) {}

  MemoryPools& pools;
  HostTier& host;

  /// Tries `reserve` again after each block or page that some sequence could spare. It may lose
  /// this sequence's own blocks: `reserve` must place blocks last, after all calls that can fail.
  Status make_room(FunctionRef<Status()> reserve, HostRoom room = HostRoom::any) const {
    return reclaimer_.make_room(holder_, reserve, room);
  }
  /// As make_room(), but without taking anything from sequences.
  Status make_spare_room(FunctionRef<Status()> reserve) const {
    return reclaimer_.make_spare_room(reserve);
  }
  /// The sequence is used: others give up memory before it does.
  void note_use() const { reclaimer_.note_use(holder_); }
  /// Returns a device block. Errors: out_of_memory naming the limit and what to do.
  [[nodiscard]] Result<std::byte*> take_block() const { return reclaimer_.take_block(holder_); }

 private:
  Reclaimer& reclaimer_;
  MemoryHolder& holder_;
};

}  // namespace terrace
