#include "iteration_limits.hpp"

#include <algorithm>

namespace terrace {

std::size_t IterationLimits::limit_of(std::size_t layer,
                                      const policies::HiddenClustering& clustering, Duration late) {
  if (!fixed_.empty()) return fixed_[std::min(layer, fixed_.size() - 1)];
  const std::lock_guard lock(mutex_);
  const auto sent = static_cast<double>(clustering.prompt.size());
  return planner_.plan(clustering, planner_.model().offload(sent) + seconds(late));
}

void IterationLimits::note_clustering(std::size_t rows, double iterations, Duration time) {
  const std::lock_guard lock(mutex_);
  planner_.observe_clustering(rows, iterations, seconds(time));
}

void IterationLimits::note_compute(const policies::HiddenClustering& clustering, Duration time) {
  const std::lock_guard lock(mutex_);
  planner_.observe_compute(clustering, seconds(time));
}

}  // namespace terrace
