// What a recorded selection asks of a cache of a given granularity.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "terrace/core/result.hpp"
#include "terrace/offload/resident_cache.hpp"
#include "terrace/tuning/trace.hpp"

namespace terrace::tuning {

/// One layer of one step; of a record that is no selection nothing but where a load's window
/// begins. Spans are valid until the next cut.
struct LayerTraffic {
  std::span<const offload::WantedUnit> wanted;  ///< ascending; without what is resident anyway
  std::uint64_t resident_rows = 0;
  std::size_t keys = 0;          ///< unit keys are below it
  std::size_t middle_begin = 0;  ///< blocks before it hold sinks
  std::size_t window_begin = 0;  ///< blocks before it have left the window
};

/// Cuts selections into units. Threads: one at a time.
class TrafficCutter {
 public:
  /// `block_tokens`: of the blocks to cut tokens into.
  /// Errors: invalid_argument: a trace of blocks or clusters has no other size than its own.
  [[nodiscard]] static Result<TrafficCutter> create(const TraceHead& head,
                                                    std::size_t block_tokens);

  /// Of any record.
  const LayerTraffic& cut(const TraceRecord& record);

  [[nodiscard]] std::size_t block_tokens() const noexcept { return block_tokens_; }

 private:
  TrafficCutter(const TraceHead& head, std::size_t block_tokens)
      : head_(head), block_tokens_(block_tokens) {}
  void cut_tokens(const TraceRecord& record);
  void cut_units(const TraceRecord& record);
  [[nodiscard]] bool is_resident(const TraceRecord& record, std::size_t block) const noexcept;

  TraceHead head_;
  std::size_t block_tokens_;
  std::vector<std::uint32_t> rows_;  ///< per block
  std::vector<offload::WantedUnit> wanted_;
  LayerTraffic traffic_;
};

}  // namespace terrace::tuning
