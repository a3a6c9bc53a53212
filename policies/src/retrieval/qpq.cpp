// Query-aware product quantisation: PQCache's index and scan in the basis where a key's
// quantisation error is the error of its logit.
//   build:  from the queries of the prompt's end S = mean of q q^T, shrunk towards all directions
//           alike; keys are stretched by S^(1/2), centred, and turned to their principal axes,
//           which are divided among the sub-spaces by variance (query_basis.hpp). Then k-means (L2)
//           into 2^bits centroids per sub-space
//   extend: keys are mapped the same way and get the nearest centroids
//   select: queries are mapped so that all logits keep their values but for one constant per query
//           (keys are centred), which no softmax sees; then as pqcache
// Index: as pqcache's, and three matrices' worth a KV head. Deterministic for a seed on any number
// of threads. Source: own; product quantisation of keys: PQCache.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "coded_keys.hpp"
#include "head_keys.hpp"
#include "pq_codes.hpp"
#include "query_basis.hpp"
#include "row_mean.hpp"
#include "rows.hpp"
#include "selection_args.hpp"
#include "terrace/kernels/map_vectors.hpp"

namespace terrace::policies {
namespace {

// Fewer say too little about where queries look; more are of another part of the text.
constexpr std::size_t qpq_query_window = 1024;

/// The part of the index after the codebooks: per KV head the maps of queries and keys, and the
/// centre of the keys.
class Maps {
 public:
  Maps(const KvShape& shape, const PqShape& pq, std::byte* fixed) noexcept
      : heads_(shape.kv_heads),
        dims_(shape.head_dim),
        values_(reinterpret_cast<float*>(fixed + codebook_bytes(shape, pq))) {}

  [[nodiscard]] static std::size_t bytes(const KvShape& shape) noexcept {
    return shape.kv_heads * (2 * shape.head_dim + 1) * shape.head_dim * sizeof(float);
  }
  [[nodiscard]] float* queries(std::size_t head) const noexcept {
    return values_ + head * dims_ * dims_;
  }
  [[nodiscard]] float* keys(std::size_t head) const noexcept { return queries(heads_ + head); }
  [[nodiscard]] float* mean(std::size_t head) const noexcept {
    return queries(2 * heads_) + head * dims_;
  }

 private:
  std::size_t heads_;
  std::size_t dims_;
  float* values_;
};

void map_keys(const Maps& maps, std::size_t head, std::size_t dims, std::span<float> keys) {
  std::vector<float> mapped(dims);
  for (std::size_t at = 0; at < keys.size(); at += dims) {
    kernels::host::map_vector(&keys[at], maps.keys(head), dims, mapped.data());
    std::ranges::copy(mapped, &keys[at]);
  }
}

/// Reads keys of a KV head in the form that is coded: mapped and centred.
Status read_mapped_keys(const BuildRequest& request, const Maps& maps, TokenRange tokens,
                        std::size_t head, float* keys) {
  const std::size_t dims = request.shape.head_dim;
  TERRACE_TRY(read_head_keys(request, tokens, head, keys));
  map_keys(maps, head, dims, {keys, tokens.size() * dims});
  for (std::size_t i = 0; i < tokens.size() * dims; ++i) keys[i] -= maps.mean(head)[i % dims];
  return {};
}

/// The queries of a KV head's group: [positions * group, head_dim].
std::vector<float> group_queries(const BuildRequest& request, std::size_t head) {
  const KvShape& shape = request.shape;
  const std::size_t whole = shape.query_heads * shape.head_dim;
  const std::size_t part = shape.group() * shape.head_dim;
  std::vector<float> queries;
  for (std::size_t at = head * part; at < request.hints.query_window.size(); at += whole) {
    const auto group = request.hints.query_window.subspan(at, part);
    queries.insert(queries.end(), group.begin(), group.end());
  }
  return queries;
}

/// The maps and codebooks of one KV head.
class HeadIndex {
 public:
  HeadIndex(const BuildRequest& request, const PqShape& pq, std::size_t head)
      : request_(request), pq_(pq), head_(head), maps_(request.shape, pq, request.fixed) {}

  [[nodiscard]] Result<BuildReport> build(double shrinkage) {
    keys_ = std::make_unique_for_overwrite<float[]>(request_.tokens.size() * dims());
    TERRACE_TRY(read_head_keys(request_, request_.tokens, head_, keys_.get()));
    // An index made anew has no queries at hand: it keeps looking where the first one did.
    const bool knows_maps = request_.anew && request_.hints.query_window.empty();
    if (!knows_maps) find_maps(shrinkage);
    map_all_keys();
    BuildReport whole;
    for (std::size_t subspace = 0; subspace < pq_.subspaces; ++subspace) {
      const std::unique_ptr<float[]> of_subspace = cut_out(subspace);
      TERRACE_ASSIGN(const BuildReport report,
                     train_codebook(request_, pq_, {of_subspace.get(), head_, subspace}));
      whole.iterations = std::max(whole.iterations, report.iterations);
    }
    return whole;
  }

 private:
  [[nodiscard]] std::size_t dims() const noexcept { return request_.shape.head_dim; }
  [[nodiscard]] std::span<float> keys() const noexcept {
    return {keys_.get(), request_.tokens.size() * dims()};
  }

  void find_maps(double shrinkage) {
    const QueryBasis basis = find_query_basis({.dims = dims(),
                                               .queries = group_queries(request_, head_),
                                               .keys = keys(),
                                               .shrinkage = shrinkage,
                                               .subspaces = pq_.subspaces});
    std::ranges::copy(basis.query_map, maps_.queries(head_));
    std::ranges::copy(basis.key_map, maps_.keys(head_));
  }

  void map_all_keys() {
    map_keys(maps_, head_, dims(), keys());
    RowMean mean(dims());
    mean.add(keys());
    for (std::size_t i = 0; i < dims(); ++i) {
      maps_.mean(head_)[i] = static_cast<float>(mean.of(i));
    }
  }

  /// Keys of a sub-space, centred: [tokens, head_dim / subspaces].
  [[nodiscard]] std::unique_ptr<float[]> cut_out(std::size_t subspace) const {
    const std::size_t width = dims() / pq_.subspaces;
    auto cut = std::make_unique_for_overwrite<float[]>(request_.tokens.size() * width);
    const float* const mean = maps_.mean(head_);
    float* target = cut.get();
    for (std::size_t row = 0; row < keys().size(); row += dims()) {
      for (std::size_t i = subspace * width; i < (subspace + 1) * width; ++i) {
        *target++ = keys_[row + i] - mean[i];
      }
    }
    return cut;
  }

  const BuildRequest& request_;
  PqShape pq_;
  std::size_t head_;
  Maps maps_;
  std::unique_ptr<float[]> keys_;  // [tokens, head_dim]
};

/// Codes of further tokens of one KV head, with the maps and codebooks that the index has.
class HeadCodes {
 public:
  HeadCodes(const BuildRequest& request, const PqShape& pq, std::size_t head)
      : request_(request), pq_(pq), head_(head), maps_(request.shape, pq, request.fixed) {}

  [[nodiscard]] Result<BuildReport> write() const {
    const TokenRange all = request_.tokens;
    for (std::size_t begin = all.begin; begin < all.end; begin += pq_chunk_tokens) {
      TERRACE_TRY(code({begin, std::min(begin + pq_chunk_tokens, all.end)}));
    }
    return BuildReport{};
  }

 private:
  [[nodiscard]] Status code(TokenRange tokens) const {
    const std::size_t dims = request_.shape.head_dim;
    const std::size_t width = dims / pq_.subspaces;
    std::vector<float> keys(tokens.size() * dims);
    TERRACE_TRY(read_mapped_keys(request_, maps_, tokens, head_, keys.data()));
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const float* const key = &keys[i * dims];
      for (std::size_t j = 0; j < pq_.subspaces; ++j) {
        const float* const codebook = reinterpret_cast<const float*>(request_.fixed) +
                                      (head_ * pq_.subspaces + j) * pq_.centroids() * width;
        write_code(request_, pq_, {.head = head_, .subspace = j}, tokens.begin + i,
                   nearest(codebook, key + j * width, width));
      }
    }
    return {};
  }

  /// Returns the nearest centroid, ties to the lower one; 0 for a key that is not finite.
  [[nodiscard]] std::uint32_t nearest(const float* codebook, const float* key,
                                      std::size_t width) const {
    std::uint32_t best = 0;
    float least = std::numeric_limits<float>::infinity();
    for (std::uint32_t c = 0; c < pq_.centroids(); ++c) {
      float distance = 0;
      for (std::size_t k = 0; k < width; ++k) {
        const float difference = key[k] - codebook[c * width + k];
        distance += difference * difference;
      }
      if (distance < least) {
        least = distance;
        best = c;
      }
    }
    return best;
  }

  const BuildRequest& request_;
  PqShape pq_;
  std::size_t head_;
  Maps maps_;
};

class Qpq final : public CodingPolicy {
 public:
  explicit Qpq(const RetrievalOptions& options)
      : pq_(options.pq),
        reduction_(options.reduction),
        shrinkage_(options.qpq.shrinkage),
        traits_{.name = "qpq",
                .clusters = true,
                .clustering = in_words(options.pq),
                .training_tokens = 16 * options.pq.centroids(),
                .query_window_tokens = qpq_query_window,
                .leaves_out_held = true} {}

  [[nodiscard]] const RetrievalTraits& traits() const noexcept override { return traits_; }

  [[nodiscard]] Result<IndexLayout> index_layout(const KvShape& shape) const override {
    TERRACE_TRY(check_pq(pq_, shape));
    return IndexLayout{.fixed_bytes = codebook_bytes(shape, pq_) + Maps::bytes(shape),
                       .chunk_tokens = pq_chunk_tokens,
                       .chunk_bytes = shape.kv_heads * pq_.subspaces * pq_chunk_tokens};
  }

  [[nodiscard]] std::size_t select_scratch_floats(const KvShape& shape,
                                                  std::size_t candidates) const noexcept override {
    return shape.query_heads * shape.head_dim + selection_scratch_floats(shape, candidates);
  }

  [[nodiscard]] std::size_t build_parts(const BuildRequest& request) const noexcept override {
    return request.shape.kv_heads;
  }

  [[nodiscard]] Result<BuildReport> build_part(const BuildRequest& request,
                                               std::size_t head) const override {
    if (request.extends()) return HeadCodes(request, pq_, head).write();
    return HeadIndex(request, pq_, head).build(shrinkage_);
  }

  [[nodiscard]] Result<Ticket> select(std::span<const SelectRequest> batch, Queue& queue,
                                      const Ops& ops) const override {
    // Mapped queries lie at the front of a request's scratch memory.
    TERRACE_TRY(enqueue_select(ops.map_queries, batch, queue, [&](const SelectRequest& request) {
      const Maps maps(request.shape, pq_, const_cast<std::byte*>(request.index.fixed));
      return MapQueries{.shape = request.shape,
                        .query = request.query,
                        .maps = maps.queries(0),
                        .mapped = request.scratch};
    }));
    return enqueue_select(ops.pq_select, batch, queue, [&](const SelectRequest& request) {
      SelectCommon common = selection_of(request, reduction_);
      common.query = request.scratch;
      common.scratch += request.shape.query_heads * request.shape.head_dim;
      return PqSelect{common, pq_, request.index};
    });
  }

  [[nodiscard]] PqShape pq() const noexcept override { return pq_; }
  [[nodiscard]] Status read_keys(const BuildRequest& request, std::size_t head, TokenRange tokens,
                                 float* keys) const override {
    return read_mapped_keys(request, Maps(request.shape, pq_, request.fixed), tokens, head, keys);
  }
  [[nodiscard]] const float* queries(const SelectRequest& request) const noexcept override {
    return request.scratch;
  }

 private:
  PqShape pq_;
  GroupReduction reduction_;
  double shrinkage_;
  RetrievalTraits traits_;
};

}  // namespace

MadeRetrievalPolicy make_qpq(const RetrievalOptions& options) {
  TERRACE_TRY(check_pq(options.pq));
  if (!(options.qpq.shrinkage >= 0 && options.qpq.shrinkage <= 1)) {
    return fail(Errc::invalid_argument, "qpq.shrinkage is {}; use 0 to 1", options.qpq.shrinkage);
  }
  return std::make_unique<Qpq>(options);
}

}  // namespace terrace::policies
