// The clusters of one KV head during a selection: which have candidates, their scores, their marks.
//
// A cluster is active when it has a candidate; active clusters are named by their place i in
// rising order of their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "host/mass_sums.hpp"
#include "host/weight_keys.hpp"
#include "terrace/kernels/cluster_select.hpp"

namespace terrace::kernels::host {

/// An active cluster and its weight as a key, by which it is larger than those to come after it.
struct RankedCluster {
  Key key = lowest_key;
  std::uint32_t i = 0;

  /// Ties go to the lower number.
  friend bool operator<(const RankedCluster& a, const RankedCluster& b) noexcept {
    return a.key != b.key ? a.key < b.key : a.i > b.i;
  }
};

class ClusterHead {
 public:
  /// The limit of spread(): beyond it a cluster says nothing, and its estimate must not drown the
  /// rows attended exactly.
  static constexpr float spread_max = 3.0F;

  ClusterHead(const ClusterSelect& op, std::size_t head) noexcept;

  /// Counts the candidates of each cluster and names the active ones.
  void count_members() noexcept;

  /// Writes scores [group, stride]: the logarithm of a member's estimated weight in each active
  /// cluster, then the logarithm of the weight of rows attended anyway, then -inf.
  void score() noexcept;

  [[nodiscard]] std::size_t index() const noexcept { return head_; }
  [[nodiscard]] std::size_t group() const noexcept { return op_.common.shape.group(); }
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
  [[nodiscard]] std::size_t active_count() const noexcept { return active_count_; }
  [[nodiscard]] float* scores(std::size_t query) const noexcept {
    return scores_ + query * stride_;
  }
  /// Room for [group, stride] scores that ranking may overwrite, and for [stride] weights.
  [[nodiscard]] float* scores_to_reduce() const noexcept { return scores_ + group() * stride_; }
  [[nodiscard]] float* weights() const noexcept { return weights_; }
  [[nodiscard]] std::uint32_t members(std::uint32_t i) const noexcept {
    return counts_[active_[i]];
  }
  [[nodiscard]] float log_members(std::size_t i) const noexcept;
  /// Returns how often each place of a row of scores counts: clusters by their members, what is
  /// attended anyway once. In the place of ranked().
  [[nodiscard]] const std::uint32_t* counts_of_scores() noexcept;
  /// Returns |q|^2 / head_dim of a query of the group.
  [[nodiscard]] float square_of_query(std::size_t query) const noexcept;
  /// Returns how much above its centroid's logit a cluster is taken to weigh.
  [[nodiscard]] float spread(std::uint32_t i, float query_square) const noexcept;
  /// Returns the logit bias of the entry that stands for a cluster, for the group as a whole.
  [[nodiscard]] float bias(std::uint32_t i) const noexcept;

  /// The stored centroid of an active cluster, and all that is stored beside it. To ask for one
  /// after the other in rising order is cheap.
  [[nodiscard]] const std::byte* centroid(std::uint32_t i) const noexcept;
  [[nodiscard]] const ClusterPlane& plane_of(std::uint32_t i, std::size_t& slot) const noexcept;

  /// Returns the active clusters, each with the key of its weight.
  [[nodiscard]] std::span<RankedCluster> ranked(const float* weights) noexcept;

  /// Chooses the first `taken` candidates of a cluster.
  void mark(std::uint32_t i, std::uint32_t taken) noexcept {
    marks_[active_[i]] = chosen_bit + taken;
  }
  [[nodiscard]] bool chosen(std::uint32_t i) const noexcept { return marks_[active_[i]] != 0; }
  void clear_marks() noexcept;

  /// Writes the chosen candidates in rising order and returns how many there are.
  std::uint32_t list_members(std::uint32_t* ids) const noexcept;

  /// Returns the active clusters that are not chosen; takes the place of ranked().
  [[nodiscard]] std::span<std::uint32_t> unchosen() noexcept;

 private:
  // Set in the mark of a chosen cluster; the bits below count its candidates still to be listed.
  static constexpr std::uint32_t chosen_bit = std::uint32_t{1} << 31;

  [[nodiscard]] ClusterPlane plane_in(std::byte* chunk) const noexcept {
    return cluster_plane(op_.common.shape, op_.clusters, chunk, head_);
  }
  /// Takes tokens that are no candidates from the counts of their clusters.
  void leave_out(TokenRange tokens) noexcept;
  void score_steady_rows() noexcept;
  /// Asks the memory for the centroids of some active clusters from `begin` on, and writes where
  /// they lie. Returns how many.
  std::size_t ask_for_centroids(std::size_t begin, const std::byte** rows) const noexcept;

  const ClusterSelect& op_;
  std::size_t head_;
  std::size_t stride_;
  float* scores_;
  float* weights_;
  std::uint32_t* counts_;  ///< [clusters]: candidates of each
  std::uint32_t* active_;  ///< [active]: cluster numbers
  std::uint32_t* order_;   ///< [active] clusters, or twice as many words: RankedCluster
  std::uint32_t* marks_;   ///< [clusters]
  std::size_t active_count_ = 0;
  mutable ClusterPlane plane_;              ///< the last one asked for
  mutable std::size_t first_of_plane_ = 0;  ///< cluster of it
  float mean_square_ = 0;                   ///< square_of_query in the mean over the group
};

/// Follows what share of a list's attention mass is chosen, by what clusters are taken to weigh.
class MassTracker {
 public:
  MassTracker(const ClusterSelect& op, const ClusterHead& head, std::size_t first,
              std::size_t count) noexcept;

  /// Returns whether every query head has what was wanted. False when nothing was.
  [[nodiscard]] bool is_enough() const noexcept;

  void choose(std::uint32_t i) noexcept;

 private:
  static constexpr std::size_t group_max = 64;

  /// Masses of a query head relative to exp(clusters.base).
  struct QueryMass {
    MassEstimate clusters;
    double steady = 0;  ///< of what is attended anyway
    double chosen = 0;
  };

  void add_clusters(std::size_t q) noexcept;
  [[nodiscard]] bool has_enough(const QueryMass& mass) const noexcept;
  /// Logarithm of the weight of what is attended anyway.
  [[nodiscard]] double steady_logit(std::size_t q) const noexcept;
  [[nodiscard]] double estimate(std::size_t q, std::uint32_t i) const noexcept;

  const ClusterSelect& op_;
  const ClusterHead& head_;
  std::size_t first_;
  std::size_t count_;
  bool follows_;
  QueryMass queries_[group_max];
};

}  // namespace terrace::kernels::host
