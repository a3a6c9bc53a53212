// Signs: candidates by the mean of their group and the signs of their keys' distance from it (1-bit
// codes after RaBitQ); tokens that are not selected are attended to as the means of groups.
//   build:  page by page groups of tokens whose keys are alike, by soft matching, and the means of
//           their rows; then per token the signs of its key less the mean, rotated, and a factor
//   extend: the same for new tokens. Until a page is full, its tokens are coded without a group
//   select: score of the mean + factor * the rotated query times the signs; per query head the
//           softmax over the candidates, reduced over the group, top k per KV head
//   then:   the mean of the rows that are not selected is one entry of attention for each group,
//           with a logit bias of ln(their number)
// Index: per KV head and token head_dim / 8 + 3 bytes, and a row and 2 bytes a group. Nothing is
// trained, so that nothing drifts. Deterministic. A cut codes again only the tokens of the last
// page. Source: own. Codes after RaBitQ (Gao and Long 2024), matching after Chelsea (arXiv
// 2506.11418), estimates as RetroInfer's (arXiv 2505.02922).
#include "terrace/kernels/signs.hpp"

#include <algorithm>
#include <vector>

#include "groups.hpp"
#include "head_keys.hpp"
#include "rows.hpp"
#include "selection_args.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t signs_chunk_tokens = 256;
constexpr std::size_t signs_page_tokens = Groups::page_tokens;

class Signs final : public RetrievalPolicy {
 public:
  explicit Signs(const RetrievalOptions& options)
      : groups_({.group_tokens = options.signs.group_tokens,
                 .in_budget = options.signs.estimates == SignsOptions::Estimates::in_budget},
                0),
        estimates_(options.signs.estimates != SignsOptions::Estimates::off),
        reduction_(options.reduction),
        traits_{.name = "signs"} {
    traits_.gives_pseudo_entries = estimates_;
    traits_.estimates_rest = estimates_;
    if (estimates_) traits_.read_together = Groups::page_tokens;
  }

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override { return traits_; }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    const SignShape signs = signs_of(shape);
    return IndexLayout{
        .chunk_tokens = signs_chunk_tokens,
        .chunk_bytes = signs.chunk_begin + signs.chunk_bytes(shape, signs_chunk_tokens)};
  }

  [[nodiscard]] std::size_t pseudo_capacity(std::size_t tokens) const noexcept override {
    return estimates_ ? groups_.shape().count(tokens) : 0;
  }

  [[nodiscard]] RowCounts rows_within(const SelectRequest& request) const noexcept override {
    return estimates_ ? groups_.rows_within(request) : request.count;
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return std::max(selection_scratch_floats(shape, candidates),
                    estimate_scratch_floats(shape, groups_.shape(), candidates));
  }

  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept override {
    return request.shape.kv_heads;
  }

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t head) const override {
    groups_.write(request, head);
    const std::size_t first = request.index.first_token;
    const auto page_of = [&](std::size_t position) {
      return (position - first) / signs_page_tokens;
    };
    const std::size_t full = first + page_of(request.tokens.end) * signs_page_tokens;
    // A page that becomes full is coded anew, as its tokens now have groups.
    const std::size_t begin = first + page_of(request.tokens.begin) * signs_page_tokens;
    if (full > begin) TERRACE_TRY(code(request, head, {begin, full}, true));
    const std::size_t alone = std::max(full, request.tokens.begin);
    if (request.tokens.end > alone) {
      TERRACE_TRY(code(request, head, {alone, request.tokens.end}, false));
    }
    return BuildReport{};
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.sign_select, batch, queue, [&](const SelectRequest& request) {
      return SignSelect{selection_of(request, reduction_), signs_of(request.shape), request.index};
    });
  }

  [[nodiscard]] GroupRests rests(const RestsRequest& request) const override {
    return groups_.rests(request);
  }

 protected:
  [[nodiscard]] Result<bool> do_cut(const BuildRequest& request) const override {
    const std::size_t first = request.index.first_token;
    const std::size_t end = first + request.index.token_count;
    const TokenRange rest{end - request.index.token_count % signs_page_tokens, end};
    if (rest.empty()) return false;
    for (std::size_t head = 0; head < request.shape.kv_heads; ++head) {
      TERRACE_TRY(code(request, head, rest, false));
    }
    return true;
  }

 private:
  [[nodiscard]] SignShape signs_of(const KvShape& shape) const noexcept {
    const GroupShape& groups = groups_.shape();
    return {.groups = groups,
            .chunk_begin =
                align_up(groups.chunk_begin + groups.chunk_bytes(shape, signs_chunk_tokens), 4)};
  }

  /// Writes the signs of tokens, which have groups or not.
  [[nodiscard]] Status code(const BuildRequest& request, std::size_t head, TokenRange tokens,
                            bool grouped) const {
    std::vector<float> keys(tokens.size() * request.shape.head_dim);
    TERRACE_TRY(read_head_keys(request, tokens, head, keys.data()));
    kernels::host::sign_encode({.shape = request.shape,
                                .signs = signs_of(request.shape),
                                .index = request.index,
                                .head = head,
                                .tokens = tokens,
                                .grouped = grouped,
                                .keys = keys.data()});
    return {};
  }

  Groups groups_;
  bool estimates_;
  GroupReduction reduction_;
  RetrievalTraits traits_;
};

}  // namespace

MadeRetrievalPolicy make_signs(const RetrievalOptions& options) {
  const EstimateOptions groups{.group_tokens = options.signs.group_tokens};
  TERRACE_TRY(Groups::check(groups, "signs.group_tokens"));
  if (options.refine.bits == 1) {
    return fail(Errc::invalid_argument,
                "retrieval.refine 1: signs scores by one bit a channel itself; use 2, or off");
  }
  return std::make_unique<Signs>(options);
}

}  // namespace terrace::policies
