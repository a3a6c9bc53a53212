// The rests that selections leave of groups, as rows that attention reads like others.
#pragma once

#include <span>

#include "terrace/core/bytes.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/kernels/cuda/launch.hpp"
#include "terrace/kernels/estimate.hpp"

namespace terrace::kernels::cuda {

/// The offsets of the parts of EstimateRest::scratch, in floats.
class RestWork {
 public:
  constexpr explicit RestWork(const EstimateRest& op) noexcept
      : shape_(op.shape), groups_(op.pages.size() * op.groups.groups), most_(op.most) {}

  /// Groups that may have an entry.
  [[nodiscard]] constexpr std::size_t groups() const noexcept { return groups_; }
  /// Whether some of them get none, so that logits and weights are made; else all scratch but
  /// left() is not used.
  [[nodiscard]] constexpr bool chooses() const noexcept { return most_ < groups_; }
  [[nodiscard]] constexpr std::size_t entries() const noexcept {
    return chooses() ? most_ : groups_;
  }
  /// [query heads of the KV head + 1, stride()]: logits, and a row for weights. The room that
  /// choosing takes lies behind those of all heads: selection_scratch_floats() together.
  [[nodiscard]] constexpr std::size_t logits(std::size_t head) const noexcept {
    return head * (shape_.group() + 1) * stride();
  }
  [[nodiscard]] constexpr std::size_t stride() const noexcept { return align_up(groups_, 64); }
  /// u32 [groups]: rows that are not selected.
  [[nodiscard]] constexpr std::size_t left(std::size_t head) const noexcept {
    return selection_scratch_floats(shape_, groups_) + head * groups_;
  }
  /// u32 [groups]: those that may become entries.
  [[nodiscard]] constexpr std::size_t chosen(std::size_t head) const noexcept {
    return left(shape_.kv_heads) + head * groups_;
  }

 private:
  KvShape shape_;
  std::size_t groups_;
  std::size_t most_;
};

/// Writes the rests of those attentions that have some: see with_rests_written(). Two launches,
/// and choose_largest's where groups are chosen, for as many calls as one takes.
[[nodiscard]] Status write_rests(std::span<const DecodeAttention> batch, const Launch& launch);

}  // namespace terrace::kernels::cuda
