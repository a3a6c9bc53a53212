// How much of a cache a trace could ever fill: what its clusters take, and how many share it.
#pragma once

#include <cstdint>
#include <vector>

#include "terrace/tuning/layer_traffic.hpp"

namespace terrace::tuning {

struct TraceExtent {
  std::size_t sharers = 1;  ///< sequences that had the cache at a time, at the most
  /// That all clusters take which a layer of a sequence wants from one renaming to the next, at the
  /// most. A cluster has slots of its own: these are more than its rows alone would fill.
  std::size_t cluster_slots = 0;
  /// Units that a replay knows at a time, at the most, in all layers of open sequences together:
  /// clusters, or blocks of the smallest size.
  std::size_t keys = 0;
};

/// The smallest blocks that are tried, in tokens.
inline constexpr std::size_t smallest_block_tokens = 8;

/// Memory: 4 bytes a cluster of the sequences that are open, whatever the length of the trace.
class ExtentCounter {
 public:
  explicit ExtentCounter(const TraceHead& head)
      : slot_rows_(head.slot_rows), has_blocks_(head.unit != TraceUnit::cluster) {}

  void add(const TraceRecord& record);

  [[nodiscard]] const TraceExtent& extent() const noexcept { return extent_; }

 private:
  struct Layer {
    std::vector<std::uint32_t> slots;  ///< by unit: those of its largest size
    std::size_t total = 0;
    std::size_t keys = 0;
  };

  void close(std::uint64_t sequence);
  void count_clusters(Layer& layer, const TraceRecord& record);
  void count_keys(Layer& layer, const TraceRecord& record);

  std::size_t slot_rows_;
  bool has_blocks_;
  std::size_t open_keys_ = 0;
  ByLayer<Layer> layers_;
  TraceExtent extent_;
};

}  // namespace terrace::tuning
