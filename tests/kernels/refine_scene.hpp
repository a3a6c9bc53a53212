// A second stage over a made index, for suites of the op.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"
#include "terrace/kernels/refine.hpp"

namespace terrace::testing::refine_scene {

inline constexpr std::size_t chunk_tokens = 64;
inline constexpr std::size_t first = 5;
inline constexpr std::size_t tokens = 300;
inline constexpr PqShape no_codes{.subspaces = 0};

/// Random keys, an index of `all` of them, and a selection that every third token is proposed to.
class Scene {
 public:
  Scene(const KvShape& shape, std::size_t bits, PqShape pq, std::uint64_t stream = 0,
        std::size_t all = tokens)
      : keys(shape.kv_heads * all * shape.head_dim),
        queries(shape.query_heads * shape.head_dim),
        scratch(refine_scratch_floats(shape, all)),
        ids(shape.kv_heads * all, 0xffffffffU),
        counts(shape.kv_heads),
        proposed(shape.kv_heads * all),
        proposed_counts(shape.kv_heads),
        fixed(shape.kv_heads * pq.centroids() * shape.head_dim),
        all_(all),
        random_(seed(), {87, stream}) {
    for (float& x : keys) x = 3 + 2 * normal(random_);
    for (float& x : queries.span()) x = normal(random_);
    for (float& x : fixed) x = 3 + normal(random_);
    op = {.common = {.shape = shape,
                     .query = queries.data(),
                     .candidates = {first + 7, first + all - 49},
                     .count = {.mean = 20},
                     .ids = ids.data(),
                     .id_count = counts.data(),
                     .id_stride = all,
                     .scratch = scratch.data()},
          .codes = {.bits = bits, .pq = pq},
          .proposed = proposed.data(),
          .proposed_count = proposed_counts.data(),
          .proposed_stride = all};
    const std::size_t own = align_up(shape.kv_heads * pq.subspaces * chunk_tokens, 4);
    op.codes.chunk_begin = own;
    for (std::size_t i = 0; i < divide_up(all, chunk_tokens); ++i) {
      memory_.emplace_back(own + op.codes.chunk_bytes(shape, chunk_tokens));
      for (std::size_t k = 0; k < own && pq.subspaces > 0; ++k) {
        memory_.back()[k] = static_cast<std::byte>(random_.below(pq.centroids()));
      }
      chunks_.push_back(memory_.back().data());
      auto* const vectors = reinterpret_cast<float*>(chunks_.back() + own);
      const std::size_t numbers = op.codes.vector_bytes(shape) / sizeof(float);
      for (std::size_t k = 0; k < numbers; ++k) vectors[k] = 3 + normal(random_);
    }
    op.index = {.fixed = reinterpret_cast<const std::byte*>(fixed.data()),
                .chunks = chunks_.data(),
                .chunk_tokens = chunk_tokens,
                .first_token = first,
                .token_count = all};
    propose(3);
    encode();
  }

  /// Proposes every `step`-th candidate, another one to each KV head.
  void propose(std::size_t step) {
    for (std::size_t head = 0; head < op.common.shape.kv_heads; ++head) {
      proposed_counts[head] = 0;
      const TokenRange all = op.common.candidates;
      for (std::size_t p = all.begin + head % step; p < all.end; p += step) {
        proposed[head * all_ + proposed_counts[head]++] = static_cast<std::uint32_t>(p);
      }
    }
  }

  /// Codes all keys.
  void encode() {
    const KvShape& shape = op.common.shape;
    for (std::size_t head = 0; head < shape.kv_heads; ++head) {
      const float* const own = key(head, first);
      std::vector<float> copy(own, own + all_ * shape.head_dim);
      kernels::host::refine_encode({.shape = shape,
                                    .codes = op.codes,
                                    .index = op.index,
                                    .head = head,
                                    .tokens = {first, first + all_},
                                    .keys = copy.data()});
    }
  }

  /// The vector that a chunk's keys are coded less: [kv_heads, head_dim].
  [[nodiscard]] std::span<float> vectors(std::size_t chunk) {
    const std::size_t numbers = op.codes.vector_bytes(op.common.shape) / sizeof(float);
    return {reinterpret_cast<float*>(chunks_[chunk] + op.codes.chunk_begin), numbers};
  }

  [[nodiscard]] float* key(std::size_t head, std::size_t position) {
    return keys.data() + (head * all_ + position - first) * op.common.shape.head_dim;
  }

  std::vector<float> keys;  ///< [kv_heads, all, head_dim]
  Guarded<float> queries;
  Guarded<float> scratch;
  Guarded<std::uint32_t> ids;
  Guarded<std::uint32_t> counts;
  std::vector<std::uint32_t> proposed;
  std::vector<std::uint32_t> proposed_counts;
  std::vector<float> fixed;
  RefineSelect op;

 private:
  std::size_t all_;  ///< tokens of the index
  Rng random_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> chunks_;
};

}  // namespace terrace::testing::refine_scene
