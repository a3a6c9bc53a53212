// Training codebooks of product quantisation and writing codes: what pqcache and qpq share.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "terrace/core/retrieval.hpp"
#include "terrace/kernels/kmeans.hpp"

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

/// Clusters the sub-keys of a request's tokens into a codebook, then writes their codes.
class CodebookTraining {
 public:
  /// What `keys` and `request` point to stays where it is.
  CodebookTraining(const BuildRequest& request, const PqShape& pq, const SubKeys& keys);

  /// As IndexPart's.
  [[nodiscard]] Result<bool> do_piece();
  [[nodiscard]] BuildReport report() const noexcept { return report_; }

 private:
  [[nodiscard]] Status begin();

  BuildRequest request_;
  PqShape pq_;
  SubKeys keys_;
  std::vector<std::uint32_t> labels_;  // [tokens]
  std::optional<kernels::host::KmeansInPieces> clustering_;
  BuildReport report_;
};

/// Writes the code of a token.
void write_code(const BuildRequest& request, const PqShape& pq, const SubKeys& keys,
                std::size_t position, std::uint32_t code) noexcept;

}  // namespace terrace::policies
