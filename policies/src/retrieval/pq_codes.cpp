#include "pq_codes.hpp"

#include <fmt/core.h>

#include <vector>

#include "terrace/core/rng.hpp"
#include "terrace/kernels/kmeans.hpp"

namespace terrace::policies {

Status check_pq(const PqShape& pq) {
  if (pq.subspaces != 0 && pq.bits != 0 && pq.bits <= 8) return {};
  return fail(Errc::invalid_argument,
              "pq.subspaces {} and pq.bits {}: use at least 1, and at most 8 bits", pq.subspaces,
              pq.bits);
}

std::string in_words(const PqShape& pq) {
  return fmt::format("{} subspaces of {} bits", pq.subspaces, pq.bits);
}

Status check_pq(const PqShape& pq, const KvShape& shape) {
  if (shape.head_dim % pq.subspaces == 0) return {};
  return fail(Errc::invalid_argument, "pq.subspaces {} does not divide head_dim {}", pq.subspaces,
              shape.head_dim);
}

void write_code(const BuildRequest& request, const PqShape& pq, const SubKeys& keys,
                std::size_t position, std::uint32_t code) noexcept {
  const std::size_t at = position - request.index.first_token;
  std::byte* const chunk = request.index.chunks[at / pq_chunk_tokens];
  const std::size_t plane = keys.head * pq.subspaces + keys.subspace;
  chunk[plane * pq_chunk_tokens + at % pq_chunk_tokens] = static_cast<std::byte>(code);
}

Result<BuildReport> train_codebook(const BuildRequest& request, const PqShape& pq,
                                   const SubKeys& keys) {
  const std::size_t dims = request.shape.head_dim / pq.subspaces;
  const std::size_t part = keys.head * pq.subspaces + keys.subspace;
  std::vector<std::uint32_t> labels(request.tokens.size());
  Serial alone;
  TERRACE_ASSIGN(
      const kernels::KmeansReport report,
      kernels::host::kmeans(
          {.rows = keys.rows, .row_count = labels.size(), .dims = dims},
          {.clusters = pq.centroids(),
           .iterations = request.iterations,
           .seed = Rng(request.seed, {index(request.layer), part})(),
           .cancelled = request.cancelled,
           .measures_inertia = false},
          {.centroids = reinterpret_cast<float*>(request.fixed) + part * pq.centroids() * dims,
           .labels = labels.data()},
          alone));
  for (std::size_t i = 0; i < labels.size(); ++i) {
    write_code(request, pq, keys, request.tokens.begin + i, labels[i]);
  }
  return BuildReport{.iterations = report.iterations};
}

}  // namespace terrace::policies
