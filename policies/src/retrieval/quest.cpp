// Quest: pages of 16 tokens by the largest score a key in them could have.
//   build:  per page and KV head the channel-wise maxima and minima of the keys
//   extend: the open page's bounds are made anew
//   select: score = sum over channels of max(q * max, q * min), never below any q.k of the page;
//           per query head the softmax over the pages, reduced over the group; pages by falling
//           weight, the last one cut to the budget
// Index: 2/16 of the keys. Deterministic. Extending is the same as building at once.
// Source: Quest (Tang et al., arXiv 2406.10774), which has lists per query head; per KV head: own.
#include <algorithm>
#include <cmath>

#include "page_index.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

class Quest final : public PageIndex {
 public:
  Quest(std::size_t page_tokens, GroupReduction reduction)
      : PageIndex({.name = "quest", .indexed_together = page_tokens, .read_together = page_tokens},
                  {.page_tokens = page_tokens, .bounds = true}, reduction) {}

 private:
  void describe(const BuildRequest& request, const PageKeys& page, float* vector) const override {
    const std::size_t dims = request.shape.head_dim;
    std::copy_n(page.keys, dims, vector);
    std::copy_n(page.keys, dims, vector + dims);
    // An element that is not a number says nothing about the others.
    for (std::size_t t = 1; t < page.tokens; ++t) {
      for (std::size_t i = 0; i < dims; ++i) {
        vector[i] = std::fmax(vector[i], page.keys[t * dims + i]);
        vector[dims + i] = std::fmin(vector[dims + i], page.keys[t * dims + i]);
      }
    }
  }
};

}  // namespace

MadeRetrievalPolicy make_quest(const RetrievalOptions& options) {
  TERRACE_TRY(check_page_tokens("quest.page_tokens", options.quest.page_tokens));
  return std::make_unique<Quest>(options.quest.page_tokens, options.reduction);
}

}  // namespace terrace::policies
