// Estimates: what a policy does not select is attended to as the means of groups of alike tokens.
//   build:  as the policy does; then page by page groups of tokens whose keys are alike, by soft
//           matching, and the means of their keys and values
//   extend: the same for pages that new tokens complete
//   select: the policy's. Once the rows are there, of each group the mean of the rows that are not
//           selected, with a logit bias of ln(their number). Where entries count towards the
//           budget, they take the place of rows, of a fifth at most, and those with the largest
//           attention weights stay
// Index: the policy's, and a byte a token and 4 * head_dim + 2 bytes a group and KV head. Tokens of
// a page that is not full, or not all of candidates, are selected or left out, not estimated.
// Source: own. Matching: Chelsea (CentroidKV), arXiv 2506.11418. RetroInfer (arXiv 2505.02922)
// estimates the clusters that it does not select.
#include "estimated.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "../retention/soft_matching.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/estimate.hpp"
#include "terrace/kernels/row_address.hpp"
#include "wrapping_policy.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t rows_per_entry = 5;
constexpr std::size_t page_tokens = 64;  // it divides the chunks of all indexes

/// Groups the tokens of pages, of one KV head.
class Matching {
 public:
  Matching(const BuildRequest& request, const GroupShape& groups, std::size_t head)
      : request_(request), groups_(groups), head_(head) {}

  /// Writes the groups of each page whose last token is among those of the request.
  void write() const {
    const std::size_t first = request_.index.first_token;
    const std::size_t end = (request_.tokens.end - first) / page_tokens;
    for (std::size_t page = (request_.tokens.begin - first) / page_tokens; page < end; ++page) {
      const std::vector<std::uint8_t> group_of = match(first + page * page_tokens);
      kernels::host::average_groups({.shape = request_.shape,
                                     .groups = groups_,
                                     .index = request_.index,
                                     .head = head_,
                                     .page = page,
                                     .rows = request_.rows,
                                     .group_of = group_of});
    }
  }

 private:
  /// Returns the group of each token of the page that begins at `first`.
  [[nodiscard]] std::vector<std::uint8_t> match(std::size_t first) const {
    std::vector<const std::byte*> rows(page_tokens);
    for (std::size_t i = 0; i < page_tokens; ++i) {
      rows[i] = kernels::row_address(request_.shape, request_.rows, head_, first + i);
    }
    const std::vector<std::uint32_t> which = fitting(rows);
    std::vector<std::uint32_t> positions(page_tokens);
    std::iota(positions.begin(), positions.end(), 0U);
    const std::vector<std::uint32_t> degrees(page_tokens, 1);
    const auto matched =
        match_softly(request_.shape, {.rows = rows, .positions = positions, .degrees = degrees},
                     which, groups_.groups, 0);
    std::vector<std::uint8_t> group_of(page_tokens, GroupShape::none);
    for (std::size_t group = 0; group < matched.size(); ++group) {
      for (const std::uint32_t token : matched[group]) {
        group_of[token] = static_cast<std::uint8_t>(group);
      }
    }
    return group_of;
  }

  /// Returns the tokens whose rows may be of a group.
  [[nodiscard]] std::vector<std::uint32_t> fitting(std::span<const std::byte* const> rows) const {
    const KvShape& shape = request_.shape;
    std::vector<std::uint32_t> which;
    for (std::uint32_t i = 0; i < rows.size(); ++i) {
      if (kernels::host::fits_a_group(rows[i], shape.dtype, 2 * shape.head_dim)) {
        which.push_back(i);
      }
    }
    return which;
  }

  const BuildRequest& request_;
  const GroupShape& groups_;
  std::size_t head_;
};

class Estimated final : public WrappingPolicy {
 public:
  Estimated(std::unique_ptr<RetrievalPolicy> base, const EstimateOptions& options)
      : WrappingPolicy(std::move(base)), options_(options) {
    traits_.gives_pseudo_entries = true;
    traits_.estimates_rest = true;
    // Groups would count what is held a second time.
    traits_.leaves_out_held = false;
    traits_.stops_at_mass = false;
  }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    TERRACE_ASSIGN(IndexLayout layout, base().index_layout(shape));
    const GroupShape groups = groups_behind(layout);
    layout.chunk_bytes = groups.chunk_begin + groups.chunk_bytes(shape, layout.chunk_tokens);
    return layout;
  }

  [[nodiscard]] const std::uint32_t* labels(const KvShape& shape, std::byte* chunk,
                                            std::size_t head) const noexcept override {
    return base().labels(shape, chunk, head);
  }

  [[nodiscard]] std::size_t pseudo_capacity(std::size_t tokens) const noexcept override {
    return groups().count(tokens);
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return std::max(base().select_scratch_floats(shape, candidates),
                    estimate_scratch_floats(shape, groups(), candidates));
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    if (!options_.in_budget) return base().select(batch, queue, ops);
    return select_changed(batch, queue, ops,
                          [this](const SelectRequest& request) { return less_entries(request); });
  }

  [[nodiscard]] Result<Ticket> estimate(std::span<const EstimateRequest> batch, Queue& queue,
                                        const Ops& ops) const override {
    if (batch.empty()) return queue.record();
    TERRACE_ASSIGN(const IndexLayout layout, base().index_layout(batch.front().selection.shape));
    const GroupShape groups = groups_behind(layout);
    return enqueue_select(ops.estimate_rest, batch, queue, [&](const EstimateRequest& request) {
      const SelectRequest& selection = request.selection;
      return EstimateRest{.shape = selection.shape,
                          .query = selection.query,
                          .candidates = selection.candidates,
                          .groups = groups,
                          .index = selection.index,
                          .ids = selection.out.ids,
                          .id_count = selection.out.id_count,
                          .id_stride = selection.out.capacity,
                          .rows = request.rows,
                          .most = entries_of(selection),
                          .means = request.means,
                          .pseudo = selection.out.pseudo,
                          .scratch = selection.scratch};
    });
  }

 private:
  [[nodiscard]] Status write_behind(const IndexLayout& layout, const BuildRequest& request,
                                    std::size_t head) const override {
    const GroupShape groups = groups_behind(layout);
    Matching(request, groups, head).write();
    return {};
  }

  [[nodiscard]] GroupShape groups() const noexcept {
    return {.page_tokens = page_tokens, .groups = page_tokens / options_.group_tokens};
  }
  /// The groups, behind an index of that layout.
  [[nodiscard]] GroupShape groups_behind(const IndexLayout& layout) const noexcept {
    GroupShape behind = groups();
    behind.chunk_begin = align_up(layout.chunk_bytes, 4);
    return behind;
  }

  /// Returns how many entries a KV head may have.
  [[nodiscard]] std::size_t entries_of(const SelectRequest& request) const noexcept {
    const std::size_t all = pseudo_capacity(request.candidates.size());
    return options_.in_budget ? std::min(all, request.count.mean / rows_per_entry) : all;
  }

  /// The request, for as many rows fewer as there may be entries.
  [[nodiscard]] SelectRequest less_entries(SelectRequest request) const noexcept {
    request.count.mean -= entries_of(request);
    return request;
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
  if (page_tokens % estimates.group_tokens != 0) {
    return fail(Errc::invalid_argument, "retrieval.estimate_tokens {}: use 0, or a divisor of {}",
                estimates.group_tokens, page_tokens);
  }
  if (traits.lists == ListScope::query_head) {
    return fail(Errc::invalid_argument,
                "retrieval.estimate_tokens needs lists of KV heads: clusterkv.lists kv_head");
  }
  return std::make_unique<Estimated>(std::move(base), estimates);
}

}  // namespace terrace::policies
