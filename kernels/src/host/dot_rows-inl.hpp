// Dot products of up to four f32 queries with rows of any dtype.
#if defined(TERRACE_KERNELS_DOT_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_DOT_ROWS_INL
#undef TERRACE_KERNELS_DOT_ROWS_INL
#else
#define TERRACE_KERNELS_DOT_ROWS_INL
#endif

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Rows that dot_step<queries> takes at once: as many as keep their sums in 16 registers.
template <std::size_t queries>
constexpr std::size_t rows_per_step = queries == 4 ? 2 : 4;

/// Writes the dot products of `queries` queries with rows_per_step rows: out [queries, rows].
///
/// Layout   query q starts at query + q * stride, zeros behind its `dims` up to a whole vector
/// A product's order of additions does not depend on which queries and rows share a step.
template <typename Elements, std::size_t queries>
HWY_INLINE void dot_step(const float* query, std::size_t stride, const std::byte* const* rows,
                         std::size_t dims, float* out) {
  constexpr std::size_t step = rows_per_step<queries>;
  const FloatTag tag;
  Floats sums[queries * step];
#pragma GCC unroll 12
  for (std::size_t i = 0; i < queries * step; ++i) sums[i] = hn::Zero(tag);
  const auto accumulate = [&](std::size_t dim, auto load) HWY_ATTR {
#pragma GCC unroll 4
    for (std::size_t t = 0; t < step; ++t) {
      const Floats key = load(rows[t] + dim * Elements::bytes);
#pragma GCC unroll 4
      for (std::size_t q = 0; q < queries; ++q) {
        const Floats factor = hn::LoadU(tag, query + q * stride + dim);
        sums[q * step + t] = hn::MulAdd(factor, key, sums[q * step + t]);
      }
    }
  };
  std::size_t dim = 0;
  for (; dim + lanes <= dims; dim += lanes) {
    accumulate(dim, [](const std::byte* at) HWY_ATTR { return Elements::load(at); });
  }
  if (dim < dims) {
    const std::size_t rest = dims - dim;
    accumulate(dim, [rest](const std::byte* at) HWY_ATTR { return load_tail<Elements>(at, rest); });
  }
#pragma GCC unroll 3
  for (std::size_t i = 0; i < queries * step; i += 4) {
    hn::StoreU(sums_of_lanes(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]), QuadTag(), out + i);
  }
}

/// Writes the dot products of `queries` queries with `count` rows: query q, row t to
/// out[q * out_stride + t]. `before_step(t)` runs before rows t onwards are read.
template <typename Elements, std::size_t queries, typename BeforeStep>
HWY_INLINE void dot_rows(const float* query, std::size_t stride, const std::byte* const* rows,
                         std::size_t count, std::size_t dims, float* out, std::size_t out_stride,
                         BeforeStep before_step) {
  constexpr std::size_t step = rows_per_step<queries>;
  alignas(64) float products[queries * step];
  for (std::size_t t = 0; t < count; t += step) {
    before_step(t);
    const std::byte* few[step];
    const std::byte* const* at = rows + t;
    const std::size_t here = HWY_MIN(step, count - t);
    if (here < step) {
      // The last rows do not fill a step: the last one stands in, its products are dropped.
      for (std::size_t i = 0; i < step; ++i) few[i] = rows[HWY_MIN(t + i, count - 1)];
      at = few;
    }
    dot_step<Elements, queries>(query, stride, at, dims, products);
    for (std::size_t q = 0; q < queries; ++q) {
      for (std::size_t i = 0; i < here; ++i) {
        out[q * out_stride + t + i] = products[q * step + i];
      }
    }
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
