// The part that selections have in common once the logits of all candidates are there.
#pragma once

#include <span>

#include "terrace/core/ops.hpp"
#include "terrace/kernels/cuda/launch.hpp"
#include "terrace/kernels/estimate.hpp"

namespace terrace::kernels::cuda {

/// Returns how far rows of `entries` logits lie apart in the scratch memory, [kv_heads, group + 1,
/// stride]: logits of the group's query heads, then a row of the head's weights.
constexpr std::size_t logit_stride(std::size_t entries) noexcept {
  return (entries + 63) / 64 * 64;
}

/// The pages that have candidates: what of an index pages are, for a selection.
struct CandidatePages {
  std::size_t page_tokens = 1;
  std::size_t first = 0;  ///< number of the first page that has a candidate
  std::size_t count = 0;
  std::size_t skipped = 0;  ///< tokens of it that are no candidates

  static constexpr CandidatePages of(const PageSelect& op) noexcept {
    const TokenRange& candidates = op.common.candidates;
    if (candidates.empty()) return {};
    const std::size_t page_tokens = op.pages.page_tokens;
    const std::size_t begin = candidates.begin - op.index.first_token;
    const std::size_t last = candidates.end - 1 - op.index.first_token;
    return {page_tokens, begin / page_tokens, last / page_tokens + 1 - begin / page_tokens,
            begin % page_tokens};
  }
};

/// Returns how many candidates need a logit: 0 if no row is wanted.
constexpr std::size_t candidates_to_score(const SelectCommon& common) noexcept {
  return common.count.mean == 0 ? 0 : common.candidates.size();
}

/// Reduces logits to weights and chooses the largest. At most two launches for as many calls as one
/// takes, three where one of them has many candidates. Logits of page_select are of pages, and a
/// page counts as many candidates as it has; logits of refine_select are of proposed rows; logits
/// of EstimateRest are of groups, which are the candidates.
[[nodiscard]] Status choose_largest(std::span<const PqSelect> batch, const Launch& launch);
[[nodiscard]] Status choose_largest(std::span<const ExactSelect> batch, const Launch& launch);
[[nodiscard]] Status choose_largest(std::span<const ChannelSelect> batch, const Launch& launch);
[[nodiscard]] Status choose_largest(std::span<const PageSelect> batch, const Launch& launch);
[[nodiscard]] Status choose_largest(std::span<const RefineSelect> batch, const Launch& launch);
[[nodiscard]] Status choose_largest(std::span<const EstimateRest> batch, const Launch& launch);
[[nodiscard]] Status choose_largest(std::span<const SignSelect> batch, const Launch& launch);

}  // namespace terrace::kernels::cuda
