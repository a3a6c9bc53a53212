// A selection of pages over a made index, for suites of the op.
#pragma once

#include <functional>
#include <vector>

#include "kernels/block_store.hpp"
#include "kernels/guarded.hpp"
#include "kernels/kernel_run.hpp"

namespace terrace::testing::page_scene {

inline constexpr std::size_t chunk_tokens = 64;
inline constexpr std::size_t first = 5;
inline constexpr std::size_t tokens = 300;

/// Page vectors of random numbers of an index of `all` tokens, and memory for a selection over
/// them.
struct Scene {
  Scene(const KvShape& shape, const PageShape& pages, std::size_t all = tokens)
      : queries(shape.query_heads * shape.head_dim),
        scratch(page_scratch_floats(shape, pages, all)),
        ids(shape.kv_heads * all, 0xffffffffU),
        counts(shape.kv_heads) {
    Rng rng(seed(), {81});
    for (float& x : queries.span()) x = normal(rng);
    const std::size_t elements =
        shape.kv_heads * (chunk_tokens / pages.page_tokens) * pages.dims(shape);
    for (std::size_t i = 0; i < divide_up(all, chunk_tokens); ++i) {
      memory.emplace_back(elements * size_bytes(shape.dtype));
      chunks.push_back(memory.back().data());
      for (std::size_t k = 0; k < elements; ++k) {
        // Maxima above minima, as the keys of a page have them.
        const bool maximum = k % pages.dims(shape) < shape.head_dim;
        const float away = pages.bounds ? (maximum ? 4.0F : -4.0F) : 0.0F;
        store_f32(chunks.back(), shape.dtype, k, normal(rng) + away);
      }
    }
    op = {.common = {.shape = shape,
                     .query = queries.data(),
                     .candidates = {first + 7, first + all - 49},
                     .ids = ids.data(),
                     .id_count = counts.data(),
                     .id_stride = all,
                     .scratch = scratch.data()},
          .pages = pages,
          .index = {.chunks = chunks.data(), .chunk_tokens = chunk_tokens, .first_token = first}};
  }

  /// Gives pages other vectors: element(page, i), i in [0, dims), page in all of the index.
  void fill(const std::function<float(std::size_t, std::size_t)>& element) {
    const std::size_t dims = op.pages.dims(op.common.shape);
    const std::size_t pages = chunk_tokens / op.pages.page_tokens;
    for (std::size_t at = 0; at < chunks.size() * pages * op.common.shape.kv_heads; ++at) {
      const std::size_t chunk = at / pages / op.common.shape.kv_heads;
      const std::size_t place = at - chunk * pages * op.common.shape.kv_heads;
      for (std::size_t i = 0; i < dims; ++i) {
        store_f32(chunks[chunk], op.common.shape.dtype, place * dims + i,
                  element(chunk * pages + place % pages, i));
      }
    }
  }

  Guarded<float> queries;
  Guarded<float> scratch;
  Guarded<std::uint32_t> ids;
  Guarded<std::uint32_t> counts;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> chunks;
  PageSelect op;
};

}  // namespace terrace::testing::page_scene
