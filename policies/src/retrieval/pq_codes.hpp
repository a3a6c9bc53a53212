// Training codebooks of product quantisation and writing codes: what pqcache and qpq share.
#pragma once

#include <string>

#include "terrace/core/retrieval.hpp"

namespace terrace::policies {

inline constexpr std::size_t pq_chunk_tokens = 256;

/// Sub-keys of one sub-space of one KV head: [tokens, dims].
struct SubKeys {
  const float* rows = nullptr;
  std::size_t head = 0;
  std::size_t subspace = 0;
};

/// Errors: invalid_argument when sub-spaces and bits make no index, or do not fit the shape.
Status check_pq(const PqShape& pq);
Status check_pq(const PqShape& pq, const KvShape& shape);

/// Returns what a codebook's training depends on: RetrievalTraits::clustering.
std::string in_words(const PqShape& pq);

/// Returns the bytes of all codebooks, at the head of an index's fixed part.
constexpr std::size_t codebook_bytes(const KvShape& shape, const PqShape& pq) noexcept {
  return shape.kv_heads * pq.centroids() * shape.head_dim * sizeof(float);
}

/// Clusters the sub-keys of a request's tokens into a codebook, and writes their codes.
/// Errors: those of k-means.
Result<BuildReport> train_codebook(const BuildRequest& request, const PqShape& pq,
                                   const SubKeys& keys);

/// Writes the code of a token.
void write_code(const BuildRequest& request, const PqShape& pq, const SubKeys& keys,
                std::size_t position, std::uint32_t code) noexcept;

}  // namespace terrace::policies
