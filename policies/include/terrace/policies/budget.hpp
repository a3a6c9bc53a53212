// How the tokens that a step may attend to are divided.
#pragma once

#include <cstddef>
#include <limits>

#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

struct BudgetSplit {
  std::size_t sinks = 0;
  std::size_t window = 0;    ///< recent tokens, the current one not counted
  std::size_t selected = 0;  ///< rows per list
  std::size_t kept = 0;      ///< entries of a KV head that retention keeps
};

struct BudgetTerms {
  std::size_t budget_tokens = 0;
  std::size_t sink_tokens = 32;
  double window_share = 0.5;  ///< of what sinks and the current token leave
  std::size_t window_tokens_max = std::numeric_limits<std::size_t>::max();
  bool retains = false;   ///< a policy that selects nothing leaves its share to retention
  double held_share = 0;  ///< of a selecting policy's share: retention's
};

/// Deals a budget out: sinks + window + selected + kept + the current token = budget, or less where
/// the window has a limit and nothing is selected or kept.
///
/// A budget too small for the sinks shrinks them to half of what the current token leaves. A policy
/// that selects nothing gives its share to retention, or else to the window; one that selects gives
/// `held_share` of it; one that keeps everything has no limit (window = SIZE_MAX).
BudgetSplit split_budget(const BudgetTerms& terms, const RetrievalTraits& traits) noexcept;

}  // namespace terrace::policies
