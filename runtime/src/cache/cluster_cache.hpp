// A cache of clusters. Rows of cached clusters lie in slots and are found row by row, through a
// table that changes in a queue's order. The rows that a step has missed of a cluster are copied
// from where they were staged: only the rest of the cluster crosses the link.
#pragma once

#include <cstdint>
#include <span>

#include "layer/cluster_units.hpp"
#include "rows/host_rows.hpp"
#include "services/sequence_services.hpp"
#include "unit_cache.hpp"

namespace terrace {

class ClusterCache final : public UnitCache {
 public:
  ClusterCache(const SequenceServices& services, Layer& layer, CacheScratch& scratch);

  Status reserve_staging(std::size_t bytes) override;
  [[nodiscard]] std::byte* staging() const noexcept override { return staging_.data(); }
  [[nodiscard]] std::size_t missing_blocks(std::size_t length) const override;
  Status publish(Queue& compute) override;
  [[nodiscard]] CachedRows rows() const noexcept override { return slots_.rows(); }
  Status send_changes() override;
  Status await_changes() override;
  [[nodiscard]] bool reads_host_table() const noexcept override { return true; }
  void drop_unsettled() override { drop_clusters(); }
  void drop_some(double share, Rng& rng) override;
  bool spill() override;
  void give_up_device_memory() override;

 private:
  [[nodiscard]] std::size_t unit_count() const noexcept override;
  Status reserve_memory(std::size_t length) override;
  [[nodiscard]] RowUnits row_units() override;
  void want_units() override;
  Status carry_out() override;
  void release_evicted(std::span<const UnitKey> units) override;

  /// Returns whether there were any.
  bool drop_clusters();
  bool release_unused_blocks();
  /// No step fails for its cache: the layer goes without until there is room.
  void give_up_slots();
  void evict(std::span<const UnitKey> units);
  /// Gives an admitted unit slots, or lets the cache give it up and returns false.
  bool place(const policies::WantedUnit& admitted);
  /// Lists all rows of a unit that is wanted and not cached, with where they were staged.
  void list_rows_of(UnitKey unit);
  /// Enqueues what has changed in the slots, or gives them up where the host has no memory to send
  /// it from.
  Result<Ticket> flush(Queue& queue);

  /// Has the rows on the host that changes need from there.
  Result<HostRows> rows_to_send();

  ClusterSlots slots_;
  HostRows sent_rows_;       ///< that the last flush reads
  Buffer staging_;           ///< read until what was missed is in its slots
  std::uint64_t epoch_ = 0;  ///< of the index whose clusters the keys name
};

}  // namespace terrace
