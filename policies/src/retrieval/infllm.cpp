// InfLLM: blocks of 128 tokens by the mean of their most significant keys.
//   build:  per KV head the mean query of the prompt's end; per block the mean of the 4 keys that
//           it scores highest (ties to the lower position); queries and keys with a NaN or infinity
//           take no part
//   extend: the open block's vector is made anew
//   select: score = q.vector, summed over the group; blocks by falling score, the last one cut to
//           the budget
// Index: 1/128 of the keys. Deterministic. Extending is the same as building at once.
// Source: InfLLM (Xiao et al., arXiv 2402.04617). In the paper significance is the attention a key
// got from the tokens after it, one list serves all heads of a layer, and far blocks lose their
// positions.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "page_index.hpp"
#include "row_mean.hpp"
#include "rows.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t infllm_query_window = 256;

class InfLlm final : public PageIndex {
 public:
  explicit InfLlm(const InfLlmOptions& options)
      : PageIndex({.name = "infllm",
                   .indexed_together = options.block_tokens,
                   .read_together = options.block_tokens,
                   .query_window_tokens = infllm_query_window},
                  {.page_tokens = options.block_tokens}, GroupReduction::sum_logits),
        representatives_(options.representatives) {}

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    TERRACE_ASSIGN(IndexLayout layout, PageIndex::index_layout(shape));
    layout.fixed_bytes = shape.kv_heads * shape.head_dim * sizeof(float);
    return layout;
  }

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t head) const override {
    // An index made anew has no queries at hand: it keeps looking where the first one did.
    const bool keeps = request.extends() || (request.anew && request.hints.query_window.empty());
    if (!keeps) learn_mean_query(request, head);
    return PageIndex::build_part(request, head);
  }

 private:
  static float* mean_query(const BuildRequest& request, std::size_t head) noexcept {
    return reinterpret_cast<float*>(request.fixed) + head * request.shape.head_dim;
  }

  static void learn_mean_query(const BuildRequest& request, std::size_t head) {
    const KvShape& shape = request.shape;
    const std::span<const float> queries = request.hints.query_window;
    const std::size_t group = shape.group() * shape.head_dim;
    RowMean mean(shape.head_dim);
    for (std::size_t at = head * group; at < queries.size();
         at += shape.query_heads * shape.head_dim) {
      mean.add(queries.subspan(at, group));
    }
    for (std::size_t i = 0; i < shape.head_dim; ++i) {
      mean_query(request, head)[i] = static_cast<float>(mean.of(i));
    }
  }

  void describe(const BuildRequest& request, const PageKeys& page, float* vector) const override {
    const std::size_t dims = request.shape.head_dim;
    const float* const query = mean_query(request, page.head);
    std::vector<float> significance(page.tokens);
    for (std::size_t t = 0; t < page.tokens; ++t) {
      const float* const key = page.keys + t * dims;
      significance[t] = std::inner_product(key, key + dims, query, 0.0F);
    }
    std::vector<std::size_t> order(page.tokens);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::erase_if(order, [&](std::size_t t) { return !std::isfinite(significance[t]); });
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](std::size_t t) { return significance[t]; });
    order.resize(std::min(order.size(), representatives_));
    std::fill_n(vector, dims, 0.0F);
    for (const std::size_t t : order) {
      for (std::size_t i = 0; i < dims; ++i) {
        vector[i] += page.keys[t * dims + i] / static_cast<float>(order.size());
      }
    }
  }

  std::size_t representatives_;
};

}  // namespace

MadeRetrievalPolicy make_infllm(const RetrievalOptions& options) {
  TERRACE_TRY(check_page_tokens("infllm.block_tokens", options.infllm.block_tokens));
  if (options.infllm.representatives == 0) {
    return fail(Errc::invalid_argument, "infllm.representatives is 0; use at least 1");
  }
  return std::make_unique<InfLlm>(options.infllm);
}

}  // namespace terrace::policies
