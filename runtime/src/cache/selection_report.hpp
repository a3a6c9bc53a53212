// Tells an observer what one layer of a step wanted from the middle, by positions and by clusters,
// whichever of the two the cache keeps.
#pragma once

#include <cstdint>
#include <vector>

#include "services/sequence_services.hpp"
#include "terrace/runtime/selection_observer.hpp"
#include "wanted_rows.hpp"

namespace terrace {

class Layer;
class Journal;
class RuntimePlan;
class SequenceProgress;

class SelectionReport {
 public:
  explicit SelectionReport(const SequenceServices& services) noexcept;

  /// Reports the layer's token, which lies at `position`. The observer must be there.
  void report(Layer& layer, std::size_t position);

 private:
  /// Lists the distinct positions of each KV head, ascending.
  void sort_positions(const Layer& layer);
  /// Counts them by clusters. Where a policy has none, none are wanted.
  void count_clusters(Layer& layer);

  const RuntimePlan& plan_;
  const SequenceProgress& progress_;
  const Journal& journal_;
  std::vector<std::uint32_t> positions_;
  std::vector<std::uint32_t> head_counts_;
  std::vector<WantedCluster> clusters_;
  WantedRows rows_;
  std::vector<std::uint64_t> epochs_;  ///< per layer: of the clusters that were reported last
};

}  // namespace terrace
