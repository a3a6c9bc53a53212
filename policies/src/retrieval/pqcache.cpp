// PQCache: scores of all candidates from product-quantised keys, the best rows fetched.
//   build:  for each KV head and sub-space, k-means (L2) of the sub-keys into 2^bits centroids;
//           codes are the labels. Trained on everything after the sinks, the window included, so
//           that prompt tokens have codes when they leave it
//   extend: nearest centroids of the existing codebook
//   select: per query head a table of q.centroid, logits by look-up, softmax over the candidates,
//           reduced over the group, top k per KV head, ties to the lower position
// Index: subspaces bytes a token and KV head, 4 * 2^bits * head_dim bytes a KV head. Deterministic
// for a seed on any number of threads. Source: PQCache (Zhang et al., arXiv 2407.12820), idea and
// parameters; see docs/decisions/0003 for where codes are made.
#include <memory>

#include "coded_keys.hpp"
#include "head_keys.hpp"
#include "pq_codes.hpp"
#include "rows.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/pq_encode.hpp"
#include "terrace/kernels/rows.hpp"

namespace terrace::policies {
namespace {

/// Builds one sub-space of one KV head.
Result<BuildReport> build_subspace(const BuildRequest& request, const PqShape& pq,
                                   std::size_t part) {
  const SubKeys of{.head = part / pq.subspaces, .subspace = part % pq.subspaces};
  const std::size_t dims = request.shape.head_dim / pq.subspaces;
  const auto keys = std::make_unique_for_overwrite<float[]>(request.tokens.size() * dims);
  TERRACE_TRY(kernels::host::read_keys({.shape = request.shape,
                                        .rows = request.rows,
                                        .tokens = request.tokens,
                                        .head = of.head,
                                        .first_dim = of.subspace * dims,
                                        .dims = dims},
                                       keys.get()));
  return train_codebook(request, pq, {keys.get(), of.head, of.subspace});
}

class PqCache final : public CodingPolicy {
 public:
  explicit PqCache(const RetrievalOptions& options)
      : pq_(options.pq),
        reduction_(options.reduction),
        traits_{.name = "pqcache",
                .clusters = true,
                .clustering = in_words(options.pq),
                .training_tokens = 16 * options.pq.centroids(),
                .leaves_out_held = true} {}

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

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t part) const override {
    if (!request.extends()) return build_subspace(request, pq_, part);
    Serial alone;
    TERRACE_TRY(kernels::host::pq_encode(
        {request.shape, pq_, request.rows, request.tokens, request.index}, alone));
    return BuildReport{};
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    return enqueue_select(ops.pq_select, batch, queue, [&](const SelectRequest& request) {
      return PqSelect{selection_of(request, reduction_), pq_, request.index};
    });
  }

  [[nodiscard]] PqShape pq() const noexcept override { return pq_; }
  [[nodiscard]] Status read_keys(const BuildRequest& request, std::size_t head, TokenRange tokens,
                                 float* keys) const override {
    return read_head_keys(request, tokens, head, keys);
  }
  [[nodiscard]] const float* queries(const SelectRequest& request) const noexcept override {
    return request.query;
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
