// Cluster selection: see terrace/kernels/cluster_select.hpp.
#include "terrace/kernels/cluster_select.hpp"

#include <algorithm>
#include <span>

#include "host/cluster_head.hpp"
#include "host/group_weights.hpp"

namespace terrace::kernels::host {
namespace {

/// Chooses and writes the lists of one KV head.
class HeadSelection {
 public:
  HeadSelection(const ClusterSelect& op, std::size_t head) noexcept : op_(op), head_(op, head) {}

  void run() noexcept {
    head_.count_members();
    head_.score();
    if (op_.scope == ListScope::kv_head) return choose_list(head_.index(), 0, head_.group());
    for (std::size_t q = 0; q < head_.group(); ++q) {
      choose_list(head_.index() * head_.group() + q, q, 1);
    }
  }

 private:
  /// Ranks for the query heads [first, first + count) of the group and writes list `list`.
  void choose_list(std::size_t list, std::size_t first, std::size_t count) noexcept {
    MassTracker mass(op_, head_, first, count);
    const float* const weights = rank(first, count);
    std::span<RankedCluster> heap = head_.ranked(weights);
    std::make_heap(heap.begin(), heap.end());
    std::size_t left = op_.common.wanted(head_.index());
    std::size_t passed_over = 0;
    std::size_t popped = 0;
    while (left > 0 && popped < heap.size() && !mass.is_enough()) {
      std::pop_heap(heap.begin(), heap.end() - static_cast<std::ptrdiff_t>(popped));
      ++popped;
      const std::uint32_t best = heap[heap.size() - popped].i;
      const std::uint32_t members = head_.members(best);
      const auto taken = static_cast<std::uint32_t>(std::min<std::size_t>(members, left));
      if (taken < members && !op_.trims) {
        if (++passed_over == clusters_passed_over_max) break;
        continue;
      }
      head_.mark(best, taken);
      mass.choose(best);
      left -= taken;
    }
    op_.common.id_count[list] = head_.list_members(op_.common.ids + list * op_.common.id_stride);
    if (op_.pseudo.count != nullptr) write_pseudo_entries(list, weights);
    head_.clear_marks();
  }

  /// Returns a weight for each active cluster.
  const float* rank(std::size_t first, std::size_t count) noexcept {
    const bool by_cluster = op_.ranking == ClusterRanking::cluster_weight;
    float* const weights = head_.weights();
    if (count == 1) {
      // The order of a single head needs no softmax, whose underflow would make ties.
      if (!by_cluster) return head_.scores(first);
      for (std::size_t i = 0; i < head_.active_count(); ++i) {
        weights[i] = head_.scores(first)[i] + head_.log_members(i);
      }
      return weights;
    }
    float* const rows = head_.scores_to_reduce();
    std::copy_n(head_.scores(first), count * head_.stride(), rows);
    reduce_group({.rows = rows,
                  .group = count,
                  .stride = head_.stride(),
                  .size = head_.stride(),
                  .counts = head_.counts_of_scores()},
                 GroupReduction::sum_softmax, weights);
    for (std::uint32_t i = 0; by_cluster && i < head_.active_count(); ++i) {
      weights[i] *= static_cast<float>(head_.members(i));
    }
    return weights;
  }

  void write_pseudo_entries(std::size_t list, const float* weights) noexcept {
    std::span<std::uint32_t> rest = head_.unchosen();
    const std::size_t wanted = std::min(op_.estimated, op_.pseudo.stride);
    if (wanted < rest.size()) {
      const auto better = [weights](std::uint32_t a, std::uint32_t b) {
        return RankedCluster{key_of(weights[b]), b} < RankedCluster{key_of(weights[a]), a};
      };
      std::ranges::nth_element(rest, rest.begin() + static_cast<std::ptrdiff_t>(wanted), better);
      rest = rest.first(wanted);
      std::ranges::sort(rest);
    }
    for (std::size_t i = 0; i < rest.size(); ++i) {
      const std::size_t at = list * op_.pseudo.stride + i;
      op_.pseudo.rows[at] = head_.centroid(rest[i]);
      op_.pseudo.bias[at] = head_.bias(rest[i]);
    }
    op_.pseudo.count[list] = static_cast<std::uint32_t>(rest.size());
  }

  const ClusterSelect& op_;
  ClusterHead head_;
};

}  // namespace

void cluster_select(const ClusterSelect& op, Parallel& threads) {
  threads.for_each(op.common.shape.kv_heads,
                   [&](std::size_t head) { HeadSelection(op, head).run(); });
}

}  // namespace terrace::kernels::host
