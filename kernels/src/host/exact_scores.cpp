// Logits by dot products with keys.
#include <algorithm>

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

/// Up to 4 query heads of a group, as the engine has them.
struct Queries {
  const float* elements;  // [count, dims]
  std::size_t count;
  std::size_t dims;
  float scale;
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

template <typename Elements, std::size_t count>
HWY_INLINE void dot_run_of(const Queries& queries, const KeyRun& run) {
  alignas(64) float packed[count * KvShape::head_dim_max];
  pack_queries(queries.elements, count, queries.dims, queries.scale, packed);
  const std::byte* rows[run_rows];
  for (std::size_t begin = 0; begin < run.count; begin += run_rows) {
    const std::size_t row_count = HWY_MIN(run_rows, run.count - begin);
    for (std::size_t i = 0; i < row_count; ++i) {
      rows[i] = run.keys + (begin + i) * queries.dims * Elements::bytes;
    }
    dot_rows<Elements, count>(packed, rows, row_count, queries.dims, run.products + begin,
                              run.stride, [] HWY_ATTR {});
  }
}

template <typename Elements>
HWY_INLINE void dot_run_for(const Queries& queries, const KeyRun& run) {
  if (queries.count == 4) return dot_run_of<Elements, 4>(queries, run);
  if (queries.count == 3) return dot_run_of<Elements, 3>(queries, run);
  if (queries.count == 2) return dot_run_of<Elements, 2>(queries, run);
  return dot_run_of<Elements, 1>(queries, run);
}

void dot_run(const Queries& queries, Dtype dtype, const KeyRun& run) {
  switch (dtype) {
    case Dtype::f32:
      return dot_run_for<F32Elements>(queries, run);
    case Dtype::f16:
      return dot_run_for<F16Elements>(queries, run);
    case Dtype::bf16:
      return dot_run_for<Bf16Elements>(queries, run);
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
  for (std::size_t done = 0; done < shape.group(); done += queries_at_once) {
    const Queries queries{
        .elements = op.common.query + (head * shape.group() + done) * shape.head_dim,
        .count = std::min(queries_at_once, shape.group() - done),
        .dims = shape.head_dim,
        .scale = shape.logit_scale()};
    for_each_chunk(
        op.index, op.common.candidates,
        [&](const std::byte* chunk, std::size_t offset, std::size_t first, std::size_t count) {
          const std::size_t place = head * op.index.chunk_tokens + offset;
          const KeyRun run{.keys = chunk + place * row_half_bytes(shape),
                           .count = count,
                           .products = logits + done * stride + first,
                           .stride = stride};
          HWY_DYNAMIC_DISPATCH(dot_run)(queries, shape.dtype, run);
        });
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
