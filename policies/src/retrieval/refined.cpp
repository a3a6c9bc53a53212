// A second stage: a policy proposes `factor` times as many rows as are wanted, and those with the
// highest refined scores stay.
//   build:  as the policy does; then for each token and KV head a code of what the index leaves of
//           its key, rotated, in one or two bits an element, and a factor (kernels/refine.hpp).
//           Without codes in the index, the rest is the key less the mean of the chunk before
//   extend: the same for new tokens alone
//   select: the policy's, for more rows; scores from its codes and the codes of rests; per query
//           head the softmax over what is proposed, reduced over the group, top k per KV head
// Index: the policy's, and head_dim / 8 * bits + 2 bytes a token and KV head. Rows are selected one
// by one, also of clusters and pages. Deterministic for a seed on any number of threads.
// Source: own; codes after RaBitQ (Gao and Long 2024), the stage as FAISS' IndexRefine.
#include "refined.hpp"

#include <algorithm>
#include <vector>

#include "coded_keys.hpp"
#include "head_keys.hpp"
#include "row_mean.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/refine.hpp"
#include "wrapping_policy.hpp"

namespace terrace::policies {
namespace {

constexpr std::size_t factor_max = 64;

/// The codes of what the index leaves of keys, of one KV head.
class Rests {
 public:
  Rests(const BuildRequest& request, const CodedKeys* coded, const RefineShape& codes,
        std::size_t head)
      : request_(request), coded_(coded), codes_(codes), head_(head) {}

  /// Chunk by chunk.
  Status write() const {
    const std::size_t size = request_.index.chunk_tokens;
    const std::size_t first = request_.index.first_token;
    IndexView index = request_.index;
    index.fixed = request_.fixed;
    for (std::size_t begin = request_.tokens.begin; begin < request_.tokens.end;) {
      const std::size_t chunk = (begin - first) / size;
      const std::size_t chunk_begin = first + chunk * size;
      const TokenRange tokens{begin, std::min(chunk_begin + size, request_.tokens.end)};
      if (coded_ == nullptr && begin == chunk_begin) TERRACE_TRY(write_vector(chunk, begin));
      TERRACE_ASSIGN(std::vector<float> keys, keys_of(tokens));
      kernels::host::refine_encode({.shape = request_.shape,
                                    .codes = codes_,
                                    .index = index,
                                    .head = head_,
                                    .tokens = tokens,
                                    .keys = keys.data()});
      begin = tokens.end;
    }
    return {};
  }

 private:
  [[nodiscard]] Result<std::vector<float>> keys_of(TokenRange tokens) const {
    std::vector<float> keys(tokens.size() * request_.shape.head_dim);
    if (coded_ != nullptr) {
      TERRACE_TRY(coded_->read_keys(request_, head_, tokens, keys.data()));
    } else {
      TERRACE_TRY(read_head_keys(request_, tokens, head_, keys.data()));
    }
    return keys;
  }

  /// Writes the vector of a chunk that begins at `begin`: the mean of the keys of the chunk before;
  /// for the first chunk, its first key. Therefore the vector does not depend on how many tokens
  /// come at a time.
  [[nodiscard]] Status write_vector(std::size_t chunk, std::size_t begin) const {
    const std::size_t dims = request_.shape.head_dim;
    const TokenRange before{begin - request_.index.chunk_tokens, begin};
    TERRACE_ASSIGN(const std::vector<float> keys,
                   keys_of(chunk == 0 ? TokenRange{begin, begin + 1} : before));
    RowMean mean(dims);
    mean.add(keys);
    float* const to =
        reinterpret_cast<float*>(request_.index.chunks[chunk] + codes_.chunk_begin) + head_ * dims;
    for (std::size_t i = 0; i < dims; ++i) to[i] = static_cast<float>(mean.of(i));
    return {};
  }

  const BuildRequest& request_;
  const CodedKeys* coded_;
  const RefineShape& codes_;
  std::size_t head_;
};

/// Tokens of a group that has all tokens of an index. A power of two, so that groups of others
/// divide it.
constexpr std::size_t more_than_any_index = std::size_t{1} << 32;

/// The scratch memory of a request: the policy's, the rows it proposes, the second stage's.
struct Scratch {
  std::size_t ids = 0;  ///< floats from the front on, which is the policy's
  std::size_t counts = 0;
  std::size_t refine = 0;
  std::size_t floats = 0;

  Scratch(const RetrievalPolicy& policy, const KvShape& shape, std::size_t tokens)
      : ids(align_up(policy.select_scratch_floats(shape, tokens), 64)),
        counts(ids + align_up(shape.kv_heads * tokens, 64)),
        refine(counts + align_up(shape.kv_heads, 64)),
        floats(refine + refine_scratch_floats(shape, tokens)) {}
};

class Refined final : public WrappingPolicy {
 public:
  Refined(std::unique_ptr<RetrievalPolicy> base, const RetrievalOptions& options)
      : WrappingPolicy(std::move(base)),
        coded_(dynamic_cast<const CodingPolicy*>(&this->base())),
        options_(options.refine),
        reduction_(options.reduction) {
    traits_.stops_at_mass = false;
    // The vector of a chunk is made of the keys of the chunk before.
    if (coded_ == nullptr) traits_.read_together = more_than_any_index;
  }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    TERRACE_ASSIGN(IndexLayout layout, base().index_layout(shape));
    const RefineShape codes = codes_behind(layout);
    layout.chunk_bytes = codes.chunk_begin + codes.chunk_bytes(shape, layout.chunk_tokens);
    layout.chunk_clusters = 0;  // rows are selected, not clusters
    return layout;
  }

  [[nodiscard]] std::size_t pseudo_capacity(std::size_t tokens) const noexcept override {
    return base().pseudo_capacity(tokens);
  }

  [[nodiscard]] RowCounts rows_within(const SelectRequest& request) const noexcept override {
    return base().rows_within(request);
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return Scratch(base(), shape, candidates).floats;
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    if (batch.empty()) return queue.record();
    // A batch is of one model.
    TERRACE_ASSIGN(const IndexLayout layout, base().index_layout(batch.front().shape));
    const RefineShape codes = codes_behind(layout);
    TERRACE_TRY(propose(batch, queue, ops));
    return enqueue_select(ops.refine_select, batch, queue,
                          [&](const SelectRequest& request) { return choice_for(request, codes); });
  }

 private:
  [[nodiscard]] Status write_behind(const IndexLayout& layout, const BuildRequest& request,
                                    std::size_t head) const override {
    const RefineShape codes = codes_behind(layout);
    return Rests(request, coded_, codes, head).write();
  }

  /// Returns the codes, which follow an index of that layout.
  [[nodiscard]] RefineShape codes_behind(const IndexLayout& layout) const noexcept {
    return {.bits = options_.bits,
            .pq = coded_ == nullptr ? PqShape{.subspaces = 0} : coded_->pq(),
            .chunk_begin = align_up(layout.chunk_bytes, 4)};
  }

  /// Limits   one request allocates nothing
  Result<Ticket> propose(std::span<const SelectRequest> batch, Queue& queue, const Ops& ops) const {
    if (batch.size() == 1) {
      const SelectRequest alone = proposal_for(batch.front());
      return base().select({&alone, 1}, queue, ops);
    }
    std::vector<SelectRequest> all;
    all.reserve(batch.size());
    for (const SelectRequest& request : batch) all.push_back(proposal_for(request));
    return base().select(all, queue, ops);
  }

  /// Rows that may be proposed for each list.
  [[nodiscard]] std::size_t proposed_rows(const SelectRequest& request) const noexcept {
    return std::min(request.candidates.size(), options_.factor * request.out.capacity);
  }

  [[nodiscard]] SelectRequest proposal_for(const SelectRequest& request) const {
    const Scratch scratch(base(), request.shape, request.index.token_count);
    SelectRequest proposal = request;
    proposal.count.mean = std::min(proposed_rows(request), options_.factor * request.count.mean);
    proposal.out.capacity = proposed_rows(request);
    proposal.out.ids = reinterpret_cast<std::uint32_t*>(request.scratch + scratch.ids);
    proposal.out.id_count = reinterpret_cast<std::uint32_t*>(request.scratch + scratch.counts);
    return proposal;
  }

  [[nodiscard]] RefineSelect choice_for(const SelectRequest& request,
                                        const RefineShape& codes) const {
    const Scratch scratch(base(), request.shape, request.index.token_count);
    SelectCommon common = selection_of(request, reduction_);
    common.held = {};
    common.scratch += scratch.refine;
    if (coded_ != nullptr) common.query = coded_->queries(request);
    return {.common = common,
            .codes = codes,
            .index = request.index,
            .proposed = reinterpret_cast<std::uint32_t*>(request.scratch + scratch.ids),
            .proposed_count = reinterpret_cast<std::uint32_t*>(request.scratch + scratch.counts),
            .proposed_stride = proposed_rows(request)};
  }

  const CodedKeys* coded_;  ///< null: the index has no codes of keys
  RefineOptions options_;
  GroupReduction reduction_;
};

}  // namespace

MadeRetrievalPolicy refined(std::unique_ptr<RetrievalPolicy> base,
                            const RetrievalOptions& options) {
  const RefineOptions& refine = options.refine;
  if (refine.bits > 2) {
    return fail(Errc::invalid_argument, "retrieval.refine {}: use off, 1 or 2", refine.bits);
  }
  if (refine.factor == 0 || refine.factor > factor_max) {
    return fail(Errc::invalid_argument, "retrieval.refine_factor {}: use 1 to {}", refine.factor,
                factor_max);
  }
  const RetrievalTraits& traits = base->traits();
  if (refine.bits == 0 || !selects_by_index(traits)) return base;
  if (traits.lists == ListScope::query_head) {
    return fail(Errc::invalid_argument,
                "retrieval.refine needs lists of KV heads: clusterkv.lists kv_head");
  }
  return std::make_unique<Refined>(std::move(base), options);
}

}  // namespace terrace::policies
