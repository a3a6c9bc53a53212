// Choosing whole clusters of keys, and what stands for those not chosen: see ClusterSelect.
//
//   host::cluster_select({.common = common, .clusters = {.chunk_tokens = 320, .slots = 6},
//                         .index = view}, threads);
#pragma once

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"
#include "terrace/kernels/cluster_plane.hpp"

namespace terrace::kernels::host {

/// Shapes   candidates must be coded; scratch: cluster_scratch_floats of index.token_count
/// Order    a NaN score ranks below all others; ties go to the lower cluster number
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Cost     one pass over the labels, to list members; a product per cluster
/// Source   token budgets over clusters: ClusterKV 2024; estimation: RetroInfer 2025; ranking
///          by member weight: own
/// Tests    tests/kernels/cluster_select_test.cpp
void cluster_select(const ClusterSelect& op, Parallel& threads);

}  // namespace terrace::kernels::host
