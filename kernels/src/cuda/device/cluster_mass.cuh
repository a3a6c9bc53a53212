// The chosen share of a list's attention mass, by the weights that clusters are taken to have: the
// host's tracker for device code. Query heads are shared out over the lanes of a warp.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "device/choice.cuh"
#include "device/cluster_rows.cuh"

namespace terrace::kernels::cuda {

/// Masses of a query head relative to exp(`base`). Shared memory has no initial values.
struct QueryMass {
  double base;
  double steady;  ///< of what is attended anyway
  double chosen;
  double clusters;  ///< of all of them
};

class ListMass {
 public:
  static constexpr unsigned heads_max = 64;
  struct Shared {
    QueryMass heads[heads_max];
    double reduction[choose_threads / 32];
  };

  /// Query heads [first, first + count) of the group of KV head `head`.
  __device__ ListMass(const ClusterSelect& op, unsigned head, unsigned first, unsigned count,
                      Shared& shared)
      : op_(op),
        rows_(op, head),
        first_(first),
        count_(count),
        follows_(op.mass_wanted > 0 && op.resident.blocks != nullptr && count <= heads_max &&
                 op.common.candidates.begin == op.sinks.end &&
                 op.common.candidates.end == op.window.begin),
        shared_(shared) {}

  /// Sums what there is. Every thread of the block calls it, and a barrier follows.
  __device__ void start() const {
    for (unsigned q = 0; follows_ && q < count_; ++q) start_query(q);
  }

  /// Returns whether every query head has what was wanted. False when nothing was. Every lane of
  /// the one warp that follows calls this and choose().
  [[nodiscard]] __device__ bool is_enough() const {
    if (!follows_) return false;
    bool enough = true;
    for (unsigned q = threadIdx.x; q < count_; q += 32) enough = enough && has_enough(q);
    return __all_sync(all_lanes, enough ? 1 : 0) != 0;
  }

  __device__ void choose(unsigned i) const {
    for (unsigned q = threadIdx.x; follows_ && q < count_; q += 32) {
      QueryMass& mass = shared_.heads[q];
      mass.chosen += exp(log_weight(q, i) - mass.base);
    }
  }

 private:
  template <typename Combine>
  [[nodiscard]] __device__ double reduce(double value, Combine combine) const {
    return reduce_block(value, combine, shared_.reduction);
  }

  __device__ void start_query(unsigned q) const {
    const unsigned active = rows_.active_count();
    const double steady{rows_.scores(first_ + q)[active]};
    QueryMass mass{.base = steady};
    for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
      mass.base = fmax(mass.base, log_weight(q, i));
    }
    mass.base = reduce(mass.base, Maximum());
    for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
      mass.clusters += exp(log_weight(q, i) - mass.base);
    }
    mass.clusters = reduce(mass.clusters, Sum());
    mass.steady = exp(steady - mass.base);
    if (threadIdx.x == 0) shared_.heads[q] = mass;
  }

  /// The logarithm of what a cluster is taken to weigh.
  [[nodiscard]] __device__ double log_weight(unsigned q, unsigned i) const {
    return double{rows_.scores(first_ + q)[i]} + double{rows_.log_members(i)};
  }

  [[nodiscard]] __device__ bool has_enough(unsigned q) const {
    const QueryMass& mass = shared_.heads[q];
    // A mass that cannot be estimated is never enough; sums that are not numbers compare as false.
    if (mass.base - mass.base != 0) return false;
    const double all = mass.steady + mass.clusters;
    return mass.steady + mass.chosen >= op_.mass_wanted * all;
  }

  const ClusterSelect& op_;
  ClusterRows rows_;
  unsigned first_;
  unsigned count_;
  bool follows_;
  Shared& shared_;
};

}  // namespace terrace::kernels::cuda
