#include "pq_codes.hpp"

#include <fmt/core.h>

#include <utility>

#include "terrace/core/rng.hpp"

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

CodebookTraining::CodebookTraining(const BuildRequest& request, const PqShape& pq,
                                   const SubKeys& keys)
    : request_(request), pq_(pq), keys_(keys), labels_(request.tokens.size()) {}

Status CodebookTraining::begin() {
  const std::size_t dims = request_.shape.head_dim / pq_.subspaces;
  const std::size_t part = keys_.head * pq_.subspaces + keys_.subspace;
  TERRACE_ASSIGN(clustering_, kernels::host::KmeansInPieces::begin(
                                  {.rows = keys_.rows, .row_count = labels_.size(), .dims = dims},
                                  {.clusters = pq_.centroids(),
                                   .iterations = request_.iterations,
                                   .seed = Rng(request_.seed, {index(request_.layer), part})(),
                                   .cancelled = request_.cancelled,
                                   .measures_inertia = false},
                                  {.centroids = reinterpret_cast<float*>(request_.fixed) +
                                                part * pq_.centroids() * dims,
                                   .labels = labels_.data()}));
  return {};
}

Result<bool> CodebookTraining::do_piece() {
  if (!clustering_) TERRACE_TRY(begin());
  if (!clustering_->do_piece()) return false;
  TERRACE_ASSIGN(const kernels::KmeansReport report, clustering_->report());
  report_.iterations = report.iterations;
  for (std::size_t i = 0; i < labels_.size(); ++i) {
    write_code(request_, pq_, keys_, request_.tokens.begin + i, labels_[i]);
  }
  return true;
}

}  // namespace terrace::policies
