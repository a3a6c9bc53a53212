// Selections of whole clusters. See terrace/core/ops.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops/selection.hpp"

namespace terrace {

/// Clusters of keys. Each chunk has room for `slots` clusters of every KV head, whose members may
/// lie in any chunk; cluster `slot` of chunk c is number c * slots + slot. Per KV head a chunk
/// holds, in this order (terrace/kernels/cluster_plane.hpp):
///   centroids  KV dtype [slots, head_dim]; with `estimates` rows [slots, 2, head_dim]: the
///              mean key and the mean value
///   variance   f32 [slots], with `estimates`: mean (key - centroid)^2 over members and dimensions
///   sizes      u32 [slots]: members; 0 = no cluster
///   firsts     u32 [slots]: the first member, counted from the index's first token
///   labels     u32 [chunk_tokens]: the cluster of each token
/// An index is cut between clusters, so that it has all members of a cluster or no member.
struct ClusterShape {
  std::size_t chunk_tokens = 0;
  std::size_t slots = 0;
  bool estimates = false;
  bool operator==(const ClusterShape&) const = default;
};

/// The measure by which clusters are ranked: a share of the softmax over all members, each with its
/// centroid's key, summed over the query heads of a list.
enum class ClusterRanking : std::uint8_t {
  token_weight,    ///< of one member: what a row of the budget buys
  cluster_weight,  ///< of all members together
};

/// Clusters too large for the rest of a budget are skipped so many times; then the rest stays
/// unused.
inline constexpr std::size_t clusters_passed_over_max = 64;

/// Returns the clusters that an index of `tokens` tokens has room for.
constexpr std::size_t cluster_room(const ClusterShape& clusters, std::size_t tokens) noexcept {
  return divide_up(tokens, clusters.chunk_tokens) * clusters.slots;
}

/// Floats of one row of cluster scores: all clusters and a place for what is attended anyway.
constexpr std::size_t cluster_row_floats(const ClusterShape& clusters,
                                         std::size_t tokens) noexcept {
  return align_up(cluster_room(clusters, tokens) + 1, 64);
}

/// Returns the floats of SelectCommon::scratch for at most `tokens` in index.token_count. Per KV
/// head the host needs rows of the group's scores twice and weights, and of member counts, numbers,
/// ranks (two words each) and marks of the clusters; a device scores and for each list keys and
/// order, and counts and numbers.
constexpr std::size_t cluster_scratch_floats(const KvShape& shape, const ClusterShape& clusters,
                                             std::size_t tokens) noexcept {
  const std::size_t group = shape.group();
  const std::size_t rows = 2 * group + 6 > 3 * group + 2 ? 2 * group + 6 : 3 * group + 2;
  return shape.kv_heads * rows * cluster_row_floats(clusters, tokens);
}

/// Chooses clusters by falling rank until `common.count` candidates are reached, and lists their
/// members among the candidates, ascending. Only candidates count as members, so what is in the
/// window or was truncated is neither chosen nor estimated; a cluster without candidates does not
/// exist.
struct ClusterSelect {
  SelectCommon common;  ///< `reduction` is not used; scratch: cluster_scratch_floats
  ClusterShape clusters;
  IndexView index;
  ListScope scope = ListScope::kv_head;
  ClusterRanking ranking = ClusterRanking::token_weight;
  /// The last cluster is cut to fit, and keeps its lowest positions. Otherwise clusters that do not
  /// fit are skipped for smaller ones of lower rank.
  bool trims = true;
  /// Clusters not chosen, best first: at most this many are estimated. Needs `estimates`, per KV
  /// head.
  std::size_t estimated = 0;
  PseudoTarget pseudo = {};
  /// Rows attended anyway. Given, they take part in each query head's normaliser.
  BlockTable resident = {};
  TokenRange sinks = {};
  TokenRange window = {};
  /// > 0: the selection stops as soon as every query head of a list has this share of attention
  /// mass, by what clusters are taken to weigh. Needs `resident`.
  double mass_wanted = 0;
  /// True: a cluster's members weigh exp(variance / 2) times as much as its centroid, which is
  /// right if logits are normally distributed and keys spread equally in all directions. False: as
  /// much as the centroid, the least possible weight. Needs `estimates`.
  bool spreads = false;
};

}  // namespace terrace
