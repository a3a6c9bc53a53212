// The tokens of each cluster, as an index of clusters has them.
#pragma once

#include <gtest/gtest.h>

#include <map>

#include "policies/policy_index.hpp"
#include "terrace/kernels/cluster_plane.hpp"

namespace terrace::testing {

/// How wave's indexes are laid out by default.
inline constexpr ClusterShape wave_clusters{.chunk_tokens = 256, .slots = 22, .estimates = true};

/// An index of clusters under test, and how it is laid out.
class ClustersOf {
 public:
  ClustersOf(const PolicyIndex& index, const KvShape& shape, const ClusterShape& clusters)
      : index_(index), shape_(shape), clusters_(clusters) {}

  [[nodiscard]] kernels::ClusterPlane plane(std::size_t head, std::size_t chunk) const {
    return kernels::cluster_plane(shape_, clusters_, index_.view().chunks[chunk], head);
  }

  /// Returns the positions of each cluster of a KV head, by the labels.
  [[nodiscard]] std::map<std::uint32_t, std::vector<std::size_t>> members(std::size_t head) const {
    std::map<std::uint32_t, std::vector<std::size_t>> result;
    const std::size_t chunk = clusters_.chunk_tokens;
    for (std::size_t t = 0; t < index_.indexed().size(); ++t) {
      result[plane(head, t / chunk).labels[t % chunk]].push_back(index_.indexed().begin + t);
    }
    return result;
  }

  /// Checks that each cluster of a KV head counts its members and is their mean, within `rounding`.
  void expect_means_of_members(const BlockStore& rows, std::size_t head, double rounding) const {
    const std::size_t dims = clusters_.estimates ? 2 * shape_.head_dim : shape_.head_dim;
    for (const auto& [cluster, positions] : members(head)) {
      const kernels::ClusterPlane home = plane(head, cluster / clusters_.slots);
      const std::size_t slot = cluster % clusters_.slots;
      EXPECT_EQ(home.sizes[slot], positions.size());
      EXPECT_EQ(home.firsts[slot], positions.front() - index_.indexed().begin);
      for (std::size_t i = 0; i < dims; ++i) {
        double mean = 0;
        for (const std::size_t p : positions) mean += double{rows.key(head, p, i)};
        mean /= static_cast<double>(positions.size());
        const float stored = load_f32(home.centroids, shape_.dtype, slot * dims + i);
        EXPECT_NEAR(double{stored}, mean, rounding);
      }
    }
  }

 private:
  const PolicyIndex& index_;
  KvShape shape_;
  ClusterShape clusters_;
};

}  // namespace terrace::testing
