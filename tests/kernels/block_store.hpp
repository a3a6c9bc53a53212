// Blocks of random rows, at addresses of any alignment.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/seed.hpp"
#include "terrace/core/ops.hpp"
#include "terrace/kernels/row_address.hpp"

namespace terrace::testing {

inline std::string to_text(const KvShape& shape) {
  return std::to_string(shape.query_heads) + " query heads, " + std::to_string(shape.kv_heads) +
         " KV heads, head_dim " + std::to_string(shape.head_dim) + ", " +
         std::string(to_string(shape.dtype));
}

inline KvShape make_shape(std::size_t group, std::size_t kv_heads, std::size_t head_dim,
                          Dtype dtype) {
  return {.layers = 1,
          .query_heads = group * kv_heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .dtype = dtype};
}

class BlockStore {
 public:
  /// Makes blocks for positions [0, tokens). Each block starts `misalignment` bytes after an
  /// address that new returns.
  BlockStore(const KvShape& shape, std::size_t block_tokens, std::size_t tokens,
             std::size_t misalignment = 0)
      : shape_(shape), block_tokens_(block_tokens), tokens_(tokens) {
    const std::size_t bytes = block_tokens * shape.token_bytes();
    for (std::size_t begin = 0; begin < tokens; begin += block_tokens) {
      memory_.emplace_back(bytes + misalignment);
      blocks_.push_back(memory_.back().data() + misalignment);
    }
  }

  /// Fills all rows: element(position, head, i), i in [0, 2 * head_dim).
  void fill(const std::function<float(std::size_t, std::size_t, std::size_t)>& element) {
    for (std::size_t p = 0; p < tokens_; ++p) {
      for (std::size_t head = 0; head < shape_.kv_heads; ++head) {
        for (std::size_t i = 0; i < 2 * shape_.head_dim; ++i) {
          store_f32(row(head, p), shape_.dtype, i, element(p, head, i));
        }
      }
    }
  }

  void fill_normal(std::uint64_t stream) {
    Rng rng(seed(), {stream});
    fill([&rng](std::size_t, std::size_t, std::size_t) { return normal(rng); });
  }

  [[nodiscard]] BlockTable table() const { return {blocks_.data(), block_tokens_}; }
  [[nodiscard]] std::byte* row(std::size_t head, std::size_t position) const {
    return kernels::row_address(shape_, table(), head, position);
  }
  [[nodiscard]] float key(std::size_t head, std::size_t position, std::size_t i) const {
    return load_f32(row(head, position), shape_.dtype, i);
  }
  [[nodiscard]] std::vector<std::byte*>& blocks() { return blocks_; }
  [[nodiscard]] const KvShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t tokens() const { return tokens_; }

 private:
  KvShape shape_;
  std::size_t block_tokens_;
  std::size_t tokens_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> blocks_;
};

}  // namespace terrace::testing
