// The places of a token's codes: see RefineShape.
#pragma once

#include <cstring>

#include "terrace/core/dtype.hpp"
#include "terrace/core/ops.hpp"

namespace terrace::kernels::host {

/// The vector that keys of a chunk are coded less; of a KV head.
inline float* vector_in(std::byte* chunk, const KvShape& shape, const RefineShape& codes,
                        std::size_t head) noexcept {
  return reinterpret_cast<float*>(chunk + codes.chunk_begin) + head * shape.head_dim;
}

/// Finds chunks of tokens that rise, dividing once a chunk.
class ChunkWalk {
 public:
  explicit ChunkWalk(const IndexView& index) noexcept : index_(index) {}

  void go_to(std::size_t position) noexcept {
    token_ = position - index_.first_token - begin_;
    if (chunk_ != nullptr && token_ < index_.chunk_tokens) return;
    const std::size_t number = (position - index_.first_token) / index_.chunk_tokens;
    chunk_ = index_.chunks[number];
    begin_ = number * index_.chunk_tokens;
    token_ = position - index_.first_token - begin_;
  }
  [[nodiscard]] std::byte* chunk() const noexcept { return chunk_; }
  [[nodiscard]] std::size_t token() const noexcept { return token_; }  ///< in the chunk

 private:
  const IndexView& index_;
  std::byte* chunk_ = nullptr;
  std::size_t begin_ = 0;
  std::size_t token_ = 0;
};

/// A token of one KV head.
class RefinePlace {
 public:
  RefinePlace(const KvShape& shape, const RefineShape& codes, const IndexView& index,
              std::size_t head, const ChunkWalk& at) noexcept
      : chunk_(at.chunk()), chunk_tokens_(index.chunk_tokens), token_(at.token()) {
    const std::size_t place = head * chunk_tokens_ + token_;
    std::byte* const factors = chunk_ + codes.chunk_begin + codes.vector_bytes(shape);
    factor_ = factors + place * sizeof(std::uint16_t);
    code_ = factors + shape.kv_heads * chunk_tokens_ * sizeof(std::uint16_t) +
            place * codes.code_bytes(shape);
  }

  /// The token's code in the index itself.
  [[nodiscard]] std::size_t pq_code(const PqShape& pq, std::size_t head,
                                    std::size_t subspace) const noexcept {
    const std::size_t plane = head * pq.subspaces + subspace;
    return std::to_integer<std::size_t>(chunk_[plane * chunk_tokens_ + token_]) &
           (pq.centroids() - 1);
  }
  [[nodiscard]] float factor() const noexcept {
    std::uint16_t bits = 0;
    std::memcpy(&bits, factor_, sizeof bits);
    return bf16_to_f32(bits);
  }
  void set_factor(float factor) const noexcept {
    const std::uint16_t bits = f32_to_bf16(factor);
    std::memcpy(factor_, &bits, sizeof bits);
  }
  [[nodiscard]] std::byte* code() const noexcept { return code_; }

 private:
  std::byte* chunk_;
  std::size_t chunk_tokens_;
  std::size_t token_;
  std::byte* factor_ = nullptr;
  std::byte* code_ = nullptr;
};

}  // namespace terrace::kernels::host
