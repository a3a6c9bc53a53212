// Estimates of what a selection leaves out: of each group of tokens the mean of the rows that are
// not selected. See GroupShape.
//
//   host::average_groups(groups);          // once, when all tokens of a page are indexed
//   host::estimate_rest(rest, threads);    // at each step, once the selected rows are there
//
// Not here: which tokens are a group (policies), and estimates of whole clusters
// (cluster_select.hpp).
#pragma once

#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/core/parallel.hpp"

namespace terrace::kernels {

/// Where the parts of EstimateRest::scratch lie, in floats.
class RestWork {
 public:
  constexpr explicit RestWork(const EstimateRest& op) noexcept
      : shape_(op.shape), groups_(op.pages().size() * op.groups.groups) {}

  /// Groups that may have an entry.
  [[nodiscard]] constexpr std::size_t groups() const noexcept { return groups_; }
  /// [query heads of the KV head + 1, stride()]: logits, and a row for weights.
  [[nodiscard]] constexpr std::size_t logits(std::size_t head) const noexcept {
    return head * (shape_.group() + 1) * stride();
  }
  [[nodiscard]] constexpr std::size_t stride() const noexcept { return align_up(groups_, 64); }
  /// u32 [groups]: rows that are not selected.
  [[nodiscard]] constexpr std::size_t left(std::size_t head) const noexcept {
    return logits(shape_.kv_heads) + head * groups_;
  }
  /// u32 [groups]: those that may become entries.
  [[nodiscard]] constexpr std::size_t chosen(std::size_t head) const noexcept {
    return left(shape_.kv_heads) + head * groups_;
  }

 private:
  KvShape shape_;
  std::size_t groups_;
};

namespace host {

/// The groups of a page, of one KV head.
struct AverageGroups {
  KvShape shape;
  GroupShape groups;
  IndexView index;  ///< groups are written to its chunks
  std::size_t head = 0;
  std::size_t page = 0;                    ///< number, from the index's first token on
  BlockTable rows;                         ///< host blocks
  std::span<const std::uint8_t> group_of;  ///< [page_tokens], below groups.groups, or none
};

/// Whether a row may be of a group: its numbers, `count` of them, are finite, and so small that the
/// sum of a page's is. Another one would spoil the mean.
[[nodiscard]] bool fits_a_group(const std::byte* row, Dtype dtype, std::size_t count) noexcept;

/// Writes the groups of a page. Rows are added by rising positions, so that means have the same
/// bits on every instruction set.
///
/// Memory   the blocks of all tokens of the page are there
/// Limits   head_dim at most KvShape::head_dim_max; allocates nothing
/// Tests    tests/kernels/estimate_test.cpp
void average_groups(const AverageGroups& op) noexcept;

/// Makes entries of what a selection leaves out.
///
/// Threads  one part per KV head; results do not depend on threads; allocates nothing
/// Cost     an addition of a row per selected row, a mean per group that has one and, where there
///          are more groups than entries, a product with each query head per group
/// Source   own
/// Tests    tests/kernels/estimate_test.cpp
void estimate_rest(const EstimateRest& op, Parallel& threads);

}  // namespace host
}  // namespace terrace::kernels
