// What share of a list's attention mass is certainly chosen: terrace/kernels/cluster_select.hpp and
// its host's tracker, for device code. Query heads are shared out over the lanes of a warp.
#pragma once

#include <cuda_runtime.h>

#include <cmath>

#include "device/choice.cuh"
#include "device/cluster_rows.cuh"

namespace terrace::kernels::cuda {

/// What a query head's masses are by estimate, relative to exp(`base`). It is a base of its own:
/// next to the most that a cluster far out could weigh, estimates would vanish.
struct MassEstimate {
  double base;
  double steady;
  double chosen;
  double all;  ///< of clusters
};

/// Masses of a query head relative to exp(`base`). Shared memory has no initial values.
struct QueryMass {
  double square;  ///< |q|^2 / head_dim
  double base;
  double steady;
  double chosen_low;
  double chosen_high;
  double rest_low;
  double rest_high;
  bool bounded;           ///< false: some score or radius is not finite
  MassEstimate estimate;  ///< only followed where a share is wanted by estimate
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
        places_(op, head),
        first_(first),
        count_(count),
        first_head_(head * static_cast<unsigned>(op.common.shape.group()) + first),
        follows_((op.mass != nullptr || op.mass_wanted > 0) && op.clusters.estimates &&
                 op.resident.blocks != nullptr && count <= heads_max &&
                 op.common.candidates.begin == op.sinks.end &&
                 op.common.candidates.end == op.window.begin),
        shared_(shared) {}

  /// Sums what there is. Every thread of the block calls it, and a barrier follows.
  __device__ void start() const {
    for (unsigned q = 0; follows_ && q < count_; ++q) start_query(q);
  }

  /// Returns whether every query head has what was wanted. False when nothing was. Every lane of
  /// the one warp that follows calls this and the others.
  [[nodiscard]] __device__ bool is_enough() const {
    if (!follows_ || op_.mass_wanted <= 0) return false;
    bool enough = true;
    for (unsigned q = threadIdx.x; q < count_; q += 32) enough = enough && has_enough(q);
    return __all_sync(all_lanes, enough ? 1 : 0) != 0;
  }

  /// `whole`: all candidates of the cluster are chosen.
  __device__ void choose(unsigned i, bool whole) const {
    for (unsigned q = threadIdx.x; follows_ && q < count_; q += 32) {
      QueryMass& mass = shared_.heads[q];
      if (wants_estimate()) mass.estimate.chosen += exp(log_weight(q, i) - mass.estimate.base);
      if (!mass.bounded) continue;
      const LogMassBounds one = cluster_bounds(q, i);
      const double low = exp(one.low - mass.base);
      const double high = exp(one.high - mass.base);
      // Of a cluster that is cut nothing is certain on either side.
      mass.chosen_high += high;
      mass.rest_low -= low;
      if (!whole) continue;
      mass.chosen_low += low;
      mass.rest_high -= high;
    }
  }

  __device__ void write() const {
    if (op_.mass == nullptr) return;
    for (unsigned q = threadIdx.x; q < count_; q += 32) {
      op_.mass[first_head_ + q] = follows_ ? bounds(shared_.heads[q]) : MassBounds{};
    }
  }

 private:
  template <typename Combine>
  [[nodiscard]] __device__ double reduce(double value, Combine combine) const {
    return reduce_block(value, combine, shared_.reduction);
  }

  __device__ void start_query(unsigned q) const {
    const auto dims = static_cast<unsigned>(op_.common.shape.head_dim);
    const float* const query = op_.common.query + static_cast<std::size_t>(first_head_ + q) * dims;
    const unsigned active = rows_.active_count();
    QueryMass mass{};
    for (unsigned d = threadIdx.x; d < dims; d += choose_threads) {
      mass.square += double{query[d]} * double{query[d]};
    }
    mass.square = reduce(mass.square, Sum()) / dims;
    if (threadIdx.x == 0) shared_.heads[q].square = mass.square;
    __syncthreads();  // cluster_bounds reads it
    mass.base = double{rows_.scores(first_ + q)[active]};
    const double steady = mass.base;
    for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
      mass.base = fmax(mass.base, cluster_bounds(q, i).high);
    }
    mass.base = reduce(mass.base, Maximum());
    mass.bounded = mass.base - mass.base == 0;
    double odd = 0;
    for (unsigned i = threadIdx.x; mass.bounded && i < active; i += choose_threads) {
      const LogMassBounds one = cluster_bounds(q, i);
      mass.rest_low += exp(one.low - mass.base);
      mass.rest_high += exp(one.high - mass.base);
      if (one.high != one.high) odd = 1;
    }
    // What is small next to the largest is lost when that is taken out again: bounds stay certain
    // if they give way by more.
    constexpr double rounding = 1e-12;
    mass.rest_low = reduce(mass.rest_low, Sum()) * (1 - rounding);
    mass.rest_high = reduce(mass.rest_high, Sum()) * (1 + rounding);
    mass.bounded = mass.bounded && reduce(odd, Maximum()) == 0;
    mass.steady = exp(steady - mass.base);
    if (wants_estimate()) mass.estimate = estimate_query(q, steady);
    if (threadIdx.x == 0) shared_.heads[q] = mass;
  }

  /// Every thread of the block gets the sums.
  [[nodiscard]] __device__ MassEstimate estimate_query(unsigned q, double steady) const {
    const unsigned active = rows_.active_count();
    MassEstimate estimate{.base = steady};
    for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
      estimate.base = fmax(estimate.base, log_weight(q, i));
    }
    estimate.base = reduce(estimate.base, Maximum());
    for (unsigned i = threadIdx.x; i < active; i += choose_threads) {
      estimate.all += exp(log_weight(q, i) - estimate.base);
    }
    estimate.all = reduce(estimate.all, Sum());
    estimate.steady = exp(steady - estimate.base);
    return estimate;
  }

  [[nodiscard]] __device__ LogMassBounds cluster_bounds(unsigned q, unsigned i) const {
    const std::uint32_t cluster = rows_.active()[i];
    const std::uint32_t members = rows_.counts()[cluster];
    const double square = shared_.heads[q].square;
    const double norm = sqrt(square);
    const float spread = cluster_spread(op_, places_, cluster, static_cast<float>(square));
    const double logit = score(q, i) - double{spread};
    return log_bounds({.logit = logit,
                       .members = double(members),
                       .whole = members == places_.size(cluster),
                       .spread = norm * double{places_.radius(cluster)},
                       .rounding = norm * double{places_.rounding(cluster)}});
  }

  /// As kernels::log_mass_bounds.
  [[nodiscard]] __device__ static LogMassBounds log_bounds(const ClusterMass& cluster) {
    const double middle = cluster.logit + log(cluster.members);
    if (!cluster.whole) return {middle - cluster.spread, middle + cluster.spread};
    const double spread = cluster.spread + cluster.rounding;
    const double log_cosh = spread + log1p(exp(-2 * spread)) - log(2.0);
    return {middle - cluster.rounding, middle + cluster.rounding + log_cosh};
  }

  [[nodiscard]] __device__ bool wants_estimate() const {
    return op_.mass_wanted > 0 && op_.mass_stop == MassStop::estimated;
  }
  [[nodiscard]] __device__ double score(unsigned q, unsigned i) const {
    return double{rows_.scores(first_ + q)[i]};
  }
  /// The logarithm of what a cluster is taken to weigh.
  [[nodiscard]] __device__ double log_weight(unsigned q, unsigned i) const {
    return score(q, i) + double{rows_.log_members(i)};
  }

  [[nodiscard]] __device__ bool has_enough(unsigned q) const {
    const QueryMass& mass = shared_.heads[q];
    if (!wants_estimate()) return double{bounds(mass).low} >= op_.mass_wanted;
    // Of what cannot be estimated there is never enough; sums that are not numbers compare as
    // false.
    const MassEstimate& estimate = mass.estimate;
    if (estimate.base - estimate.base != 0) return false;
    const double all = estimate.steady + estimate.all;
    return estimate.steady + estimate.chosen >= op_.mass_wanted * all;
  }

  [[nodiscard]] __device__ static MassBounds bounds(const QueryMass& mass) {
    if (!mass.bounded) return {};
    // More chosen mass and less of the rest raise the share, and the other way round.
    const double least = mass.steady + mass.chosen_low;
    const double most = mass.steady + mass.chosen_high;
    const double low = least / (least + fmax(mass.rest_high, 0.0));
    const double high = most / (most + fmax(mass.rest_low, 0.0));
    if (!(low >= 0 && high <= 1)) return {};
    return {static_cast<float>(low), static_cast<float>(high)};
  }

  const ClusterSelect& op_;
  ClusterRows rows_;
  ClusterPlaces places_;
  unsigned first_;
  unsigned count_;
  unsigned first_head_;
  bool follows_;
  Shared& shared_;
};

}  // namespace terrace::kernels::cuda
