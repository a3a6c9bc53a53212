// The retrieval index of one layer as a value: what it holds, and the tokens that it stands for. It
// is built, extended and cut in place; it is replaced, put back and given to a fork as a whole.
#pragma once

#include "index_coverage.hpp"
#include "index_memory.hpp"

namespace terrace {

struct IndexImage {
  IndexMemory memory{Tier::host};
  IndexCoverage coverage;

  /// The index as it is now.
  [[nodiscard]] IndexView view(const IndexLayout& layout) const noexcept {
    IndexView view = memory.view(layout, coverage.tokens().begin);
    view.token_count = coverage.tokens().size();
    return view;
  }

  /// Has `other`, which is empty, be the same index in the same memory. An index of no tokens
  /// shares no memory. Errors: out_of_memory.
  [[nodiscard]] Status share_with(IndexImage& other, Backend& backend) {
    other.coverage = coverage;
    return coverage.tokens().empty() ? Status{} : memory.share_with(other.memory, backend);
  }
};

}  // namespace terrace
