// A cache of blocks. A cached block lies in device memory as a resident one does: ops find its rows
// in the same table.
#pragma once

#include <span>
#include <vector>

#include "unit_cache.hpp"

namespace terrace {

class BlockCache final : public UnitCache {
 public:
  using UnitCache::UnitCache;

  Status publish(Queue& compute) override;
  [[nodiscard]] bool keeps_blocks() const noexcept override { return resident_ != nullptr; }
  bool adopt_block(std::size_t block) override;
  void forget_block(std::size_t block) override;
  void drop_unsettled() override;
  void drop_some(double share, Rng& rng) override;
  void give_up_device_memory() override { drop_unsettled(); }

 private:
  /// A refill under way; it takes effect when the next step of its layer begins.
  struct Arrival {
    std::size_t block = 0;
    std::byte* slot = nullptr;
  };

  [[nodiscard]] std::size_t unit_count() const noexcept override;
  Status reserve_memory(std::size_t /*length*/) override { return {}; }
  [[nodiscard]] RowUnits row_units() override;
  void want_units() override;
  Status carry_out() override;
  void release_evicted(std::span<const UnitKey> blocks) override;
  /// Keeps the slots of evicted blocks for what is admitted next.
  void reuse_slots(std::span<const UnitKey> evicted);
  /// Returns a slot for a block, or null: the cache has given the block up.
  std::byte* slot_for(const policies::WantedUnit& admitted);

  std::vector<Arrival> arriving_;
};

}  // namespace terrace
