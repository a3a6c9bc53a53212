// A cache of rows, which the device keeps by itself: resolving a selection gives the rows that it
// misses slots of rows that were not wanted for longest (terrace/core/ops/rows.hpp, RowSlots). Rows
// come where they are fetched anyway, so nothing is copied for the cache, and the host decides only
// how many slots there are.
#pragma once

#include "cache_scratch.hpp"
#include "layer/layer_cache.hpp"
#include "memory/device_words.hpp"
#include "rows/pointer_table.hpp"
#include "services/sequence_services.hpp"

namespace terrace {

class RowCache final : public LayerCache {
 public:
  RowCache(const SequenceServices& services, Layer& layer, CacheScratch& scratch) noexcept
      : plan_(services.plan),
        progress_(services.progress),
        work_(services.work),
        memory_(services.memory),
        layer_(layer),
        scratch_(scratch) {}

  Status reserve(std::size_t slots, std::size_t length) override;
  void resize(std::size_t slots) override;
  [[nodiscard]] std::size_t missing_blocks(std::size_t length) const override;
  Status publish(Queue& compute) override;
  [[nodiscard]] CachedRows rows() const noexcept override;
  [[nodiscard]] RowSlots slots() const noexcept override;

  Status take_step() override;
  void count_token() override;
  void drop_unsettled() override;
  void drop_some(double share, Rng& rng) override;
  bool spill() override;
  void give_up_device_memory() override;

 private:
  /// Blocks that slots for a sequence of `length` tokens fill, at most.
  [[nodiscard]] std::size_t blocks_for(std::size_t length) const noexcept;
  Status reserve_tables(std::size_t length);
  /// Takes blocks until there are so many, or no more memory.
  void take_blocks(std::size_t count);
  void give_blocks(std::size_t left);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  Layer& layer_;
  CacheScratch& scratch_;
  std::size_t most_blocks_ = 0;  ///< of the cache's share
  std::size_t blocks_ = 0;       ///< that it has: slots of each KV head lie in them
  std::size_t lacked_ = 0;       ///< so many were not to be had
  PointerTable table_{Tier::device};
  DeviceWords numbers_;        ///< [positions, kv_heads]
  DeviceWords slots_;          ///< calls of each KV head, then a RowSlot for each row of the blocks
  std::size_t positions_ = 0;  ///< that numbers_ has room for
  bool is_stale_ = false;      ///< rows may have changed: none is kept into the next step
};

}  // namespace terrace
