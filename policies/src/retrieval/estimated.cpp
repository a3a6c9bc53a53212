// Estimates: tokens that a policy does not select are attended to as the means of groups of alike
// tokens.
//   build:  as the policy does; then page by page groups of tokens whose keys are alike, by soft
//           matching, and the means of their keys and values
//   extend: the same for pages that new tokens complete
//   select: the policy's. When the rows are selected, each group gives the mean of its other rows,
//   with a logit bias of ln(their number). If entries count towards the budget, they replace rows,
//   a fifth of them at most, and the entries with the largest attention weights stay
// Index: the policy's, and a byte a token, and a row and 2 bytes a group and KV head. Tokens of
// a page that is not full, or not all of candidates, are selected or left out, not estimated.
// Source: own. Matching: Chelsea (CentroidKV), arXiv 2506.11418. RetroInfer (arXiv 2505.02922)
// estimates the clusters that it does not select.
#include "estimated.hpp"

#include <algorithm>
#include <numeric>

#include "groups.hpp"
#include "terrace/core/assert.hpp"
#include "wrapping_policy.hpp"

namespace terrace::policies {
namespace {

class Estimated final : public WrappingPolicy {
 public:
  Estimated(std::unique_ptr<RetrievalPolicy> base, const EstimateOptions& options)
      : WrappingPolicy(std::move(base)), options_(options) {
    traits_.gives_pseudo_entries = true;
    traits_.estimates_rest = true;
    traits_.read_together = std::lcm(traits_.read_together, Groups::page_tokens);
    // Groups would count what is held a second time.
    traits_.leaves_out_held = false;
    traits_.stops_at_mass = false;
  }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    TERRACE_ASSIGN(IndexLayout layout, base().index_layout(shape));
    const GroupShape groups = groups_behind(layout).shape();
    layout.chunk_bytes = groups.chunk_begin + groups.chunk_bytes(shape, layout.chunk_tokens);
    return layout;
  }

  [[nodiscard]] const std::uint32_t* labels(const KvShape& shape, std::byte* chunk,
                                            std::size_t head) const noexcept override {
    return base().labels(shape, chunk, head);
  }

  [[nodiscard]] std::size_t pseudo_capacity(std::size_t tokens) const noexcept override {
    return groups_behind({}).shape().count(tokens);
  }

  [[nodiscard]] RowCounts rows_within(const SelectRequest& request) const noexcept override {
    return groups_behind({}).rows_within(request);
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    const GroupShape groups = groups_behind({}).shape();
    return std::max(base().select_scratch_floats(shape, candidates),
                    estimate_scratch_floats(shape, groups, candidates));
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return base().select(batch, queue, ops);
  }

  [[nodiscard]] GroupRests rests(const RestsRequest& request) const override {
    const Result<IndexLayout> layout = base().index_layout(request.selection.shape);
    TERRACE_DEBUG_ASSERT(layout);  // an index of this shape is there
    return groups_behind(*layout).rests(request);
  }

 private:
  [[nodiscard]] Status write_behind(const IndexLayout& layout, const BuildRequest& request,
                                    std::size_t head) const override {
    groups_behind(layout).write(request, head);
    return {};
  }

  /// Returns the groups, which follow an index of that layout.
  [[nodiscard]] Groups groups_behind(const IndexLayout& layout) const noexcept {
    return {options_, layout.chunk_bytes};
  }

  EstimateOptions options_;
};

}  // namespace

MadeRetrievalPolicy estimated(std::unique_ptr<RetrievalPolicy> base,
                              const RetrievalOptions& options) {
  const EstimateOptions& estimates = options.estimates;
  const RetrievalTraits& traits = base->traits();
  const bool leaves_out = selects_by_index(traits) && !traits.gives_pseudo_entries;
  if (estimates.group_tokens == 0 || !leaves_out) return base;
  TERRACE_TRY(Groups::check(estimates, "retrieval.estimate_tokens"));
  if (traits.lists == ListScope::query_head) {
    return fail(Errc::invalid_argument,
                "retrieval.estimate_tokens needs lists of KV heads: clusterkv.lists kv_head");
  }
  return std::make_unique<Estimated>(std::move(base), estimates);
}

}  // namespace terrace::policies
