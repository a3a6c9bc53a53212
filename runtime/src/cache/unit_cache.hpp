// The common part of caches of blocks and clusters: a step is counted, planned, its plan carried
// out.
#pragma once

#include <memory>

#include "cache_scratch.hpp"
#include "layer/layer_cache.hpp"
#include "services/sequence_services.hpp"
#include "terrace/policies/resident_cache.hpp"

namespace terrace {

class UnitCache : public LayerCache {
 public:
  UnitCache(const SequenceServices& services, Layer& layer, CacheScratch& scratch) noexcept
      : plan_(services.plan),
        progress_(services.progress),
        work_(services.work),
        memory_(services.memory),
        layer_(layer),
        scratch_(scratch) {}

  Status reserve(std::size_t slots, std::size_t length) final;
  void resize(std::size_t slots) final;
  Status take_step() final;
  void count_token() final;

 protected:
  /// Keys of units are below it.
  [[nodiscard]] virtual std::size_t unit_count() const noexcept = 0;
  virtual Status reserve_memory(std::size_t length) = 0;
  [[nodiscard]] virtual RowUnits row_units() = 0;
  /// Lists in `scratch_.wanted` the units that have wanted rows.
  virtual void want_units() = 0;
  /// Carries out `scratch_.plan`.
  virtual Status carry_out() = 0;
  /// Units that a smaller cache has no room for.
  virtual void release_evicted(std::span<const UnitKey> units) = 0;

  /// Returns how many rows of a unit the step wanted, and counts them.
  std::uint32_t count_unit(UnitKey unit, bool hit);
  /// Device memory is smaller than the cache was meant to be: lists in `scratch_.evicted` what goes
  /// for a unit, or gives the unit up and returns false.
  bool displace_for(const policies::WantedUnit& admitted);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  SequenceWork& work_;
  const SequenceMemory& memory_;
  Layer& layer_;
  CacheScratch& scratch_;
  std::unique_ptr<policies::ResidentCache> resident_;  ///< null = wanted units are only counted
};

}  // namespace terrace
