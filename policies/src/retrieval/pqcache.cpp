// PQCache: scores of all candidates from product-quantised keys, the best rows fetched.
//   build:  for each KV head and sub-space, k-means (L2) of the sub-keys into 2^bits centroids;
//           codes are the labels. Trained on everything behind the sinks, the window included, so
//           that prompt tokens have codes when they leave it
//   extend: nearest centroids of the existing codebook
//   select: per query head a table of q.centroid, logits by look-up, softmax over the candidates,
//           reduced over the group, top k per KV head, ties to the lower position
// Index: subspaces bytes a token and KV head, 4 * 2^bits * head_dim bytes a KV head. Deterministic
// for a seed on any number of threads. Source: PQCache (Zhang et al., arXiv 2407.12820), idea and
// parameters; see docs/decisions/0003 for where codes are made.
#include <memory>

#include "pq_codes.hpp"
#include "rows.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/pq_encode.hpp"
#include "terrace/kernels/rows.hpp"
#include "token_pieces.hpp"

namespace terrace::policies {
namespace {

/// One sub-space of one KV head.
class Subspace final : public IndexPart {
 public:
  Subspace(const BuildRequest& request, const PqShape& pq, std::size_t part)
      : request_(request),
        head_(part / pq.subspaces),
        subspace_(part % pq.subspaces),
        dims_(request.shape.head_dim / pq.subspaces),
        keys_(std::make_unique_for_overwrite<float[]>(request.tokens.size() * dims_)),
        unread_(request.tokens),
        training_(request, pq, {keys_.get(), head_, subspace_}) {}

  [[nodiscard]] Result<bool> do_piece() override {
    if (unread_.empty()) return training_.do_piece();
    const TokenRange tokens = unread_.take();
    TERRACE_TRY(kernels::host::read_keys({.shape = request_.shape,
                                          .rows = request_.rows,
                                          .tokens = tokens,
                                          .head = head_,
                                          .first_dim = subspace_ * dims_,
                                          .dims = dims_},
                                         &keys_[(tokens.begin - request_.tokens.begin) * dims_]));
    return false;
  }
  [[nodiscard]] BuildReport report() const noexcept override { return training_.report(); }

 private:
  BuildRequest request_;
  std::size_t head_;
  std::size_t subspace_;
  std::size_t dims_;
  // [tokens, dims]. Not set to zero first: of a long sequence that takes longer than a piece may.
  std::unique_ptr<float[]> keys_;
  TokenPieces unread_;
  CodebookTraining training_;
};

/// Codes of further tokens, of all heads.
class Codes final : public IndexPart {
 public:
  Codes(const BuildRequest& request, const PqShape& pq)
      : request_(request), pq_(pq), left_(request.tokens, pq_chunk_tokens) {}

  [[nodiscard]] Result<bool> do_piece() override {
    Serial alone;
    TERRACE_TRY(kernels::host::pq_encode(
        {request_.shape, pq_, request_.rows, left_.take(), request_.index}, alone));
    return left_.empty();
  }

 private:
  BuildRequest request_;
  PqShape pq_;
  TokenPieces left_;
};

class PqCache final : public RetrievalPolicy {
 public:
  explicit PqCache(const RetrievalOptions& options)
      : pq_(options.pq),
        reduction_(options.reduction),
        traits_{.name = "pqcache",
                .clusters = true,
                .clustering = in_words(options.pq),
                .training_tokens = 16 * options.pq.centroids()} {}

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override { return traits_; }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    TERRACE_TRY(check_pq(pq_, shape));
    return IndexLayout{.fixed_bytes = codebook_bytes(shape, pq_),
                       .chunk_tokens = pq_chunk_tokens,
                       .chunk_bytes = shape.kv_heads * pq_.subspaces * pq_chunk_tokens};
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return selection_scratch_floats(shape, candidates);
  }

  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept override {
    return request.extends() ? 1 : request.shape.kv_heads * pq_.subspaces;
  }

  [[nodiscard]] std::unique_ptr<IndexPart> begin_part(const BuildRequest& request,
                                                      std::size_t part) const override {
    if (request.extends()) return std::make_unique<Codes>(request, pq_);
    return std::make_unique<Subspace>(request, pq_, part);
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.pq_select, batch, queue, [&](const SelectRequest& request) {
      return PqSelect{selection_of(request, reduction_), pq_, request.index};
    });
  }

 private:
  PqShape pq_;
  GroupReduction reduction_;
  RetrievalTraits traits_;
};

}  // namespace

MadeRetrievalPolicy make_pqcache(const RetrievalOptions& options) {
  TERRACE_TRY(check_pq(options.pq));
  return std::make_unique<PqCache>(options);
}

}  // namespace terrace::policies
