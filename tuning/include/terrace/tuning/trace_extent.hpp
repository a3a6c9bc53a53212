// How much of a cache a trace could ever fill: what its clusters take, and how many share it.
#pragma once

#include <cstdint>
#include <vector>

#include "terrace/tuning/layer_traffic.hpp"
#include "terrace/tuning/open_units.hpp"

namespace terrace::tuning {

struct TraceExtent {
  std::size_t sharers = 1;  ///< sequences that had the cache at a time, at the most
  /// The most slots of all clusters that a layer of a sequence wants between two renamings. A
  /// cluster has slots of its own, and its rows do not fill the last one.
  std::size_t cluster_slots = 0;
  std::size_t keys = 0;  ///< open units (open_units.hpp), at the most
};

/// Memory: 4 bytes a cluster of the open sequences, for a trace of any length.
class ExtentCounter {
 public:
  explicit ExtentCounter(const TraceHead& head) : slot_rows_(head.slot_rows), units_(head) {}

  void add(const TraceRecord& record);

  [[nodiscard]] const TraceExtent& extent() const noexcept { return extent_; }

 private:
  struct Layer {
    std::vector<std::uint32_t> slots;  ///< by unit: those of its largest size
    std::size_t total = 0;
  };

  void count_clusters(Layer& layer, const TraceRecord& record);

  std::size_t slot_rows_;
  OpenUnits units_;
  ByLayer<Layer> layers_;
  TraceExtent extent_;
};

}  // namespace terrace::tuning
