// A product-quantisation index in memory: random codebooks and chunks for codes.
#pragma once

#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"

namespace terrace::testing {

class PqIndex {
 public:
  PqIndex(const KvShape& shape, PqShape pq, std::size_t chunk_tokens, std::size_t tokens,
          std::size_t first_token)
      : shape_(shape),
        pq_(pq),
        chunk_tokens_(chunk_tokens),
        first_token_(first_token),
        token_count_(tokens),
        codebooks_(shape.kv_heads * pq.centroids() * shape.head_dim) {
    Rng rng(seed(), {11});
    for (float& x : codebooks_.span()) x = normal(rng);
    const std::size_t chunk_bytes = shape.kv_heads * pq.subspaces * chunk_tokens;
    for (std::size_t begin = 0; begin < tokens; begin += chunk_tokens) {
      memory_.emplace_back(chunk_bytes);
      chunks_.push_back(memory_.back().data());
    }
  }

  void fill_codes() {
    Rng rng(seed(), {12});
    for (auto& chunk : memory_) {
      for (std::byte& code : chunk.span())
        code = static_cast<std::byte>(rng.below(pq_.centroids()));
    }
  }

  [[nodiscard]] IndexView view() {
    return {.fixed = reinterpret_cast<const std::byte*>(codebooks_.data()),
            .chunks = chunks_.data(),
            .chunk_tokens = chunk_tokens_,
            .first_token = first_token_,
            .token_count = token_count_};
  }

  [[nodiscard]] std::byte& code(std::size_t head, std::size_t subspace, std::size_t position) {
    const std::size_t token = position - first_token_;
    return chunks_[token / chunk_tokens_]
                  [(head * pq_.subspaces + subspace) * chunk_tokens_ + token % chunk_tokens_];
  }

  [[nodiscard]] float* centroid(std::size_t head, std::size_t subspace, std::size_t c) {
    const std::size_t dims = shape_.head_dim / pq_.subspaces;
    return codebooks_.data() + ((head * pq_.subspaces + subspace) * pq_.centroids() + c) * dims;
  }

  [[nodiscard]] bool intact() const {
    return codebooks_.intact() &&
           std::ranges::all_of(memory_, [](const auto& chunk) { return chunk.intact(); });
  }

 private:
  KvShape shape_;
  PqShape pq_;
  std::size_t chunk_tokens_;
  std::size_t first_token_;
  std::size_t token_count_;
  Guarded<float> codebooks_;
  std::vector<Guarded<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
};

}  // namespace terrace::testing
