// A bound that no cache can pass: the hits of a cache of as many slots that knows the future and
// may divide its slots freely over time, layers and sequences.
//
// A hit needs its unit resident since the unit was last there: an interval of len steps that takes
// len x slots, and gives the rows wanted. The relaxation: the slots taken need not fit at each
// step, only in total. With a price on a slot-step the best choice is every interval that gives
// more than it costs, so for any price
//   rows hit <= sum over intervals of max(0, rows - price x len x slots) + price x slots x steps,
// and the least of these over prices is the bound. It holds for units of unequal size and worth.
#pragma once

#include <cstdint>
#include <vector>

#include "terrace/tuning/layer_traffic.hpp"

namespace terrace::tuning {

/// Memory: 8 bytes a unit of the open sequences, for a trace of any length.
class OptimumBound {
 public:
  OptimumBound(const TraceHead& head, CacheGranularity granularity);

  /// `traffic`: what the record was cut into.
  void add(const TraceRecord& record, const LayerTraffic& traffic);

  /// Returns the most rows that a cache can hit whose slots, summed over layers and steps, are
  /// `slot_steps`.
  [[nodiscard]] double rows_hit(std::uint64_t slot_steps) const;

 private:
  struct Layer {
    std::uint64_t step = 0;
    std::size_t passed = 0;
    std::vector<std::uint64_t> since;  ///< by unit: the step from which it can be resident, + 1
  };
  struct Intervals {
    double rows = 0;
    double slot_steps = 0;
  };

  void select(Layer& layer, const LayerTraffic& traffic);

  double layers_per_record_;
  bool blocks_are_adopted_;
  ByLayer<Layer> layers_;
  std::vector<Intervals> by_worth_;  ///< by rows per slot-step, logarithmic
};

}  // namespace terrace::tuning
