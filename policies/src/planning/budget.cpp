#include "terrace/policies/budget.hpp"

#include <algorithm>
#include <limits>

namespace terrace::policies {
BudgetSplit split_budget(const BudgetTerms& terms, const RetrievalTraits& traits) noexcept {
  if (traits.keeps_everything) {
    return {.sinks = terms.sink_tokens, .window = std::numeric_limits<std::size_t>::max()};
  }
  const std::size_t rest = terms.budget_tokens > 0 ? terms.budget_tokens - 1 : 0;
  BudgetSplit split;
  split.sinks = terms.sink_tokens + 2 <= rest ? terms.sink_tokens : rest / 2;
  const std::size_t shared = rest - split.sinks;
  split.window =
      traits.selects
          ? std::min(terms.window_tokens_max,
                     static_cast<std::size_t>(terms.window_share * static_cast<double>(shared)))
          : shared;
  split.selected = shared - split.window;
  return split;
}

}  // namespace terrace::policies
