// Logits by dot products with keys.
#include <algorithm>
#include <array>
#include <bit>

#include "host/scores.hpp"
#include "terrace/kernels/row_address.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/exact_scores.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/dot_rows-inl.hpp"

#ifndef TERRACE_KERNELS_EXACT_SCORES_ONCE
#define TERRACE_KERNELS_EXACT_SCORES_ONCE
namespace terrace::kernels::host {

constexpr std::size_t queries_at_once = 4;
constexpr std::size_t padded_dim_max = 1024;  // KvShape::validate

/// Queries with zeros behind each up to a whole vector.
struct PaddedQueries {
  alignas(64) std::array<float, queries_at_once * padded_dim_max> elements;
};

/// A run of keys side by side, and where their dot products go.
struct KeyRun {
  const std::byte* keys;
  std::size_t count;
  float* products;  // [queries, stride]
  std::size_t stride;
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t run_rows = 64;  // addresses made at a time

template <typename Elements, std::size_t queries>
HWY_INLINE void dot_run_of(const PaddedQueries& query, std::size_t dims, const KeyRun& run) {
  const std::byte* rows[run_rows];
  for (std::size_t begin = 0; begin < run.count; begin += run_rows) {
    const std::size_t count = HWY_MIN(run_rows, run.count - begin);
    for (std::size_t i = 0; i < count; ++i)
      rows[i] = run.keys + (begin + i) * dims * Elements::bytes;
    dot_rows<Elements, queries>(query.elements.data(), padded_dim_max, rows, count, dims,
                                run.products + begin, run.stride, [](std::size_t) HWY_ATTR {});
  }
}

template <typename Elements>
HWY_INLINE void dot_run_for(const PaddedQueries& query, std::size_t queries, std::size_t dims,
                            const KeyRun& run) {
  if (queries == 4) return dot_run_of<Elements, 4>(query, dims, run);
  if (queries == 2) return dot_run_of<Elements, 2>(query, dims, run);
  return dot_run_of<Elements, 1>(query, dims, run);
}

void dot_run(const PaddedQueries& query, std::size_t queries, const KvShape& shape,
             const KeyRun& run) {
  const std::size_t dims = shape.head_dim;
  switch (shape.dtype) {
    case Dtype::f32:
      return dot_run_for<F32Elements>(query, queries, dims, run);
    case Dtype::f16:
      return dot_run_for<F16Elements>(query, queries, dims, run);
    case Dtype::bf16:
      return dot_run_for<Bf16Elements>(query, queries, dims, run);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(dot_run);

void write_exact_logits(const ExactSelect& op, std::size_t head, float* logits,
                        std::size_t stride) noexcept {
  const KvShape& shape = op.common.shape;
  const std::size_t dims = shape.head_dim;
  const float scale = logit_scale(shape);
  std::size_t queries = 0;
  for (std::size_t done = 0; done < shape.group(); done += queries) {
    queries = std::bit_floor(std::min(queries_at_once, shape.group() - done));
    PaddedQueries query{};
    for (std::size_t q = 0; q < queries; ++q) {
      const float* source = op.common.query + (head * shape.group() + done + q) * dims;
      for (std::size_t i = 0; i < dims; ++i) {
        query.elements[q * padded_dim_max + i] = source[i] * scale;
      }
    }
    for_each_chunk(
        op.index, op.common.candidates,
        [&](const std::byte* chunk, std::size_t offset, std::size_t first, std::size_t count) {
          const std::size_t place = head * op.index.chunk_tokens + offset;
          const KeyRun run{.keys = chunk + place * row_half_bytes(shape),
                           .count = count,
                           .products = logits + done * stride + first,
                           .stride = stride};
          HWY_DYNAMIC_DISPATCH(dot_run)(query, queries, shape, run);
        });
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
