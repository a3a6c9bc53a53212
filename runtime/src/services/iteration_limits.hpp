// The iterations that clustering may take, layer by layer: fixed ones, or those that compute has
// been seen to hide.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "terrace/core/clock.hpp"
#include "terrace/policies/iteration_planner.hpp"
#include "terrace/runtime/options.hpp"

namespace terrace {

/// Threads  safe from any thread
class IterationLimits {
 public:
  explicit IterationLimits(const PlanningOptions& options)
      : fixed_(options.iterations), planner_(options.costs, options.limits) {}

  /// Returns the iterations that a layer's clustering may take that begins `late` after its rows
  /// reached the host.
  [[nodiscard]] std::size_t limit_of(std::size_t layer,
                                     const policies::HiddenClustering& clustering, Duration late);
  /// Whether limits follow times, which the calls below note.
  [[nodiscard]] bool follow_times() const noexcept { return fixed_.empty(); }
  void note_clustering(std::size_t rows, double iterations, Duration time);
  void note_compute(const policies::HiddenClustering& clustering, Duration time);

 private:
  const std::vector<std::size_t> fixed_;  ///< of each layer, the last one of all that follow
  std::mutex mutex_;
  policies::IterationPlanner planner_;
};

}  // namespace terrace
