// Choosing whole clusters of keys, and what stands for those not chosen: see ClusterSelect.
//
//   host::cluster_select({.common = common, .clusters = {.chunk_tokens = 320, .slots = 6},
//                         .index = view}, threads);
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/kernels/cluster_plane.hpp"

namespace terrace::kernels {

/// What a cluster's unnormalised mass certainly lies between, as logarithms.
///
/// With D = |q| radius / sqrt(d): members' logits differ from the centroid's by at most D. They
/// differ by 0 in the mean if all members are counted, so that e^z is the least their mean weight
/// can be, and cosh(D) e^z the most (half of them at either end); else e^-D and e^D. The
/// stored centroid is rounded, which widens both sides.
struct LogMassBounds {
  double low = 0;
  double high = 0;
};

struct ClusterMass {
  double logit = 0;  ///< of the stored centroid
  double members = 0;
  bool whole = true;    ///< all members are counted
  double spread = 0;    ///< |q| radius / sqrt(d)
  double rounding = 0;  ///< |q| rounding / sqrt(d)
};

[[nodiscard]] LogMassBounds log_mass_bounds(const ClusterMass& cluster) noexcept;

namespace host {

/// Shapes   candidates must be coded; scratch: cluster_scratch_floats of index.token_count
/// Order    a NaN score ranks below all others; ties go to the lower cluster number
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Cost     one pass over the labels, to list members; a product per cluster
/// Source   token budgets over clusters: ClusterKV 2024; estimation and its lower bound: RetroInfer
///          2025; ranking by member weight, upper bound: own
/// Tests    tests/kernels/cluster_select_test.cpp
void cluster_select(const ClusterSelect& op, Parallel& threads);

}  // namespace host
}  // namespace terrace::kernels
