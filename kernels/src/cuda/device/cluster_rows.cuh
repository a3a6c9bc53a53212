// Values worked out about the clusters of a KV head during a selection: rows of scratch memory.
//
// A cluster is active when it has a candidate; active clusters are named by their place i in
// rising order of their numbers. Counts and numbers come first, then scores of each query head,
// then for each list keys and an order.
#pragma once

#include <cuda_runtime.h>

#include "device/cluster_place.cuh"
#include "terrace/kernels/cluster_select.hpp"

namespace terrace::kernels::cuda {

class ClusterRows {
 public:
  __device__ ClusterRows(const ClusterSelect& op, unsigned head)
      : group_(static_cast<unsigned>(op.common.shape.group())),
        room_(static_cast<unsigned>(cluster_room(op.clusters, op.index.token_count))),
        stride_(cluster_row_floats(op.clusters, op.index.token_count)) {
    const std::size_t lists = lists_per_kv_head(op.common.shape, op.scope);
    rows_ = op.common.scratch + head * (2 + group_ + 2 * lists) * stride_;
  }

  /// Clusters that the index has room for.
  [[nodiscard]] __device__ unsigned room() const { return room_; }
  /// [room]: candidates of each cluster.
  [[nodiscard]] __device__ std::uint32_t* counts() const { return words(0); }
  /// [active_count]: numbers.
  [[nodiscard]] __device__ std::uint32_t* active() const { return words(1); }
  [[nodiscard]] __device__ std::uint32_t& active_count() const { return words(1)[room_]; }
  /// [active_count + 1]: for a query head of the group, the logarithm of a member's estimated
  /// weight in each active cluster, and last the logarithm of the weight of rows attended anyway.
  [[nodiscard]] __device__ float* scores(unsigned query) const {
    return rows_ + (2 + query) * stride_;
  }
  [[nodiscard]] __device__ std::uint32_t* keys(unsigned list) const {
    return words(2 + group_ + 2 * list);
  }
  [[nodiscard]] __device__ std::uint32_t* order(unsigned list) const {
    return words(3 + group_ + 2 * list);
  }

  [[nodiscard]] __device__ std::uint32_t members(unsigned i) const { return counts()[active()[i]]; }
  [[nodiscard]] __device__ float log_members(unsigned i) const {
    return logf(static_cast<float>(members(i)));
  }

 private:
  [[nodiscard]] __device__ std::uint32_t* words(unsigned row) const {
    return reinterpret_cast<std::uint32_t*>(rows_ + row * stride_);
  }

  float* rows_;
  unsigned group_;
  unsigned room_;
  std::size_t stride_;
};

/// Returns how much above its centroid's logit a cluster is taken to weigh for a query with
/// |q|^2 / head_dim.
__device__ inline float cluster_spread(const ClusterSelect& op, const ClusterPlaces& places,
                                       std::uint32_t cluster, float query_square) {
  // Beyond it a cluster says nothing: its estimate must not drown what is attended exactly.
  constexpr float spread_max = 3.0F;
  if (!op.spreads) return 0;
  return fminf(0.5F * query_square * places.variance(cluster), spread_max);
}

}  // namespace terrace::kernels::cuda
