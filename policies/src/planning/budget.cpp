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
  const double share = traits.selects || terms.retains ? terms.window_share : 1;
  split.window = std::min(terms.window_tokens_max,
                          static_cast<std::size_t>(share * static_cast<double>(shared)));
  if (traits.selects) {
    const std::size_t middle = shared - split.window;
    split.kept = static_cast<std::size_t>(terms.held_share * static_cast<double>(middle));
    split.selected = middle - split.kept;
  } else if (terms.retains) {
    split.kept = shared - split.window;
  }
  return split;
}

}  // namespace terrace::policies
