// Tells an observer what one layer of a step wanted from the middle, by positions and by clusters,
// whichever of the two the cache keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "terrace/runtime/selection_observer.hpp"
#include "wanted_rows.hpp"

namespace terrace {

class Layer;
struct SequenceContext;

class SelectionReport {
 public:
  /// Reports the layer's token, which lies at `position`. The observer must be there.
  void report(const SequenceContext& context, Layer& layer, std::size_t position);

 private:
  /// Lists the distinct positions of each KV head, ascending.
  void sort_positions(const SequenceContext& context, const Layer& layer);
  /// Counts them by clusters. Where a policy has none, none are wanted.
  void count_clusters(const SequenceContext& context, Layer& layer);

  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> head_counts_;
  std::vector<WantedCluster> clusters_;
  WantedRows rows_;
  std::vector<std::uint64_t> epochs_;  ///< per layer: of the clusters that were reported last
};

}  // namespace terrace
