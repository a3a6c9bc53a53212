// The units that a recorded selection asks a cache of a given granularity for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/policies/resident_cache.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

/// A value for each layer of each sequence.
template <typename Value>
using ByLayer = std::map<std::pair<std::uint64_t, std::size_t>, Value>;

template <typename Value>
void erase_sequence(ByLayer<Value>& kept, std::uint64_t sequence) {
  kept.erase(kept.lower_bound({sequence, 0}), kept.lower_bound({sequence + 1, 0}));
}

/// A layer of a step; for a record that is not a selection, only the begin of a load's window.
/// Spans are valid until the next cut.
struct LayerTraffic {
  /// Ascending, or rows head after head; without what is resident anyway.
  std::span<const policies::WantedUnit> wanted;
  std::uint64_t resident_rows = 0;
  std::size_t keys = 0;          ///< unit keys are below it
  std::size_t middle_begin = 0;  ///< blocks before it hold sinks
  std::size_t window_begin = 0;  ///< blocks before it have left the window
  bool renamed = false;          ///< unit keys mean others than in the step before
};

/// Cuts selections into units. Threads: one at a time.
class TrafficCutter {
 public:
  /// Errors: invalid_argument: units that the trace cannot serve.
  [[nodiscard]] static Result<TrafficCutter> create(const TraceHead& head, const CacheUnit& unit);

  /// Cuts any record.
  const LayerTraffic& cut(const TraceRecord& record);

 private:
  TrafficCutter(const TraceHead& head, const CacheUnit& unit)
      : head_(head),
        block_tokens_(unit.block_tokens),
        granularity_(unit.granularity),
        sized_(head.has_sizes(unit.granularity)) {}
  void cut_tokens(const TraceRecord& record);
  void take_rows(const TraceRecord& record);
  void take_blocks(const TraceRecord& record);
  void take_clusters(const TraceRecord& record);
  [[nodiscard]] bool is_resident(const TraceRecord& record, std::size_t block) const noexcept;

  TraceHead head_;
  std::size_t block_tokens_;
  CacheGranularity granularity_;
  bool sized_;                       ///< units are clusters
  std::vector<std::uint32_t> rows_;  ///< per block
  std::vector<policies::WantedUnit> wanted_;
  LayerTraffic traffic_;
};

}  // namespace terrace::tuning
