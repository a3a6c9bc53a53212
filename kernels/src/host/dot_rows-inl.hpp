// Dot products of up to four f32 queries with rows of any dtype.
#if defined(TERRACE_KERNELS_DOT_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_DOT_ROWS_INL
#undef TERRACE_KERNELS_DOT_ROWS_INL
#else
#define TERRACE_KERNELS_DOT_ROWS_INL
#endif

#include "host/prefetch.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// Rows that dot_step<queries> takes at once: their sums fill half of the registers at most, and
/// there are enough of them to keep two pipes of fused products busy.
template <std::size_t queries>
constexpr std::size_t rows_per_step = queries == 4   ? (registers == 32 ? 4 : 2)
                                      : queries == 1 ? 8
                                                     : 4;

/// Packs queries [queries, dims] as dot_rows reads them, a vector of each in turn:
/// [dims / lanes, queries, lanes], multiplied by `scale`, with zeros after `dims`.
HWY_INLINE void pack_queries(const float* query, std::size_t queries, std::size_t dims, float scale,
                             float* packed) {
  const FloatTag tag;
  for (std::size_t q = 0; q < queries; ++q) {
    const auto* source = reinterpret_cast<const std::byte*>(query + q * dims);
    for (std::size_t dim = 0; dim < dims; dim += lanes) {
      const std::byte* at = source + dim * F32Elements::bytes;
      const bool whole = dim + lanes <= dims;
      const Floats part = whole ? F32Elements::load(at) : load_tail<F32Elements>(at, dims - dim);
      hn::StoreU(hn::Mul(part, hn::Set(tag, scale)), tag, packed + dim * queries + q * lanes);
    }
  }
}

/// Writes the dot products of 1 to 4 packed queries with rows_per_step rows: query q, row t to
/// out[q * out_stride + t].
///
/// A product's order of additions does not depend on which queries and rows share a step. Rows are
/// read one after the other, the way memory gives them fastest; before_line() runs before each
/// line.
template <typename Elements, std::size_t queries, typename BeforeLine>
HWY_INLINE void dot_step(const float* packed, const std::byte* const* rows, std::size_t dims,
                         float* out, std::size_t out_stride, BeforeLine before_line) {
  constexpr std::size_t step = rows_per_step<queries>;
  const FloatTag tag;
  Floats sums[queries * step];
#pragma GCC unroll 16
  for (std::size_t i = 0; i < queries * step; ++i) sums[i] = hn::Zero(tag);
  const auto accumulate = [&](std::size_t t, std::size_t dim, Floats elements) HWY_ATTR {
#pragma GCC unroll 4
    for (std::size_t q = 0; q < queries; ++q) {
      const Floats factor = hn::LoadU(tag, packed + dim * queries + q * lanes);
      sums[q * step + t] = hn::MulAdd(factor, elements, sums[q * step + t]);
    }
  };
#pragma GCC unroll 8
  for (std::size_t t = 0; t < step; ++t) {
    std::size_t dim = 0;
#pragma GCC unroll 8
    for (; dim + lanes <= dims; dim += lanes) {
      const std::size_t offset = dim * Elements::bytes;
      if (offset % line_bytes == 0) before_line();
      accumulate(t, dim, Elements::load(rows[t] + offset));
    }
    if (dim == dims) continue;
    accumulate(t, dim, load_tail<Elements>(rows[t] + dim * Elements::bytes, dims - dim));
  }
#pragma GCC unroll 4
  for (std::size_t i = 0; i < queries * step; i += 4) {
    const Quad products = sums_of_lanes(sums[i], sums[i + 1], sums[i + 2], sums[i + 3]);
    float* at = out + i / step * out_stride + i % step;
    if constexpr (step % 4 == 0) {
      hn::StoreU(products, QuadTag(), at);
    } else {
      const hn::Half<QuadTag> pair;
      hn::StoreU(hn::LowerHalf(pair, products), pair, at);
      hn::StoreU(hn::UpperHalf(pair, products), pair, at + out_stride);
    }
  }
}

/// Writes the dot products of 1 to 4 packed queries with `count` rows, as dot_step does.
template <typename Elements, std::size_t queries, typename BeforeLine>
HWY_INLINE void dot_rows(const float* packed, const std::byte* const* rows, std::size_t count,
                         std::size_t dims, float* out, std::size_t out_stride,
                         BeforeLine before_line) {
  constexpr std::size_t step = rows_per_step<queries>;
  // The last rows may not fill a step: copies of the last row fill it, and their products are
  // dropped. All steps share one call, because its code is long.
  const std::size_t whole = count / step * step;
  const std::byte* few[step];
  float products[queries * step];
  for (std::size_t i = 0; i < step && whole < count; ++i) {
    few[i] = rows[HWY_MIN(whole + i, count - 1)];
  }
  for (std::size_t t = 0; t < count; t += step) {
    const bool last = t == whole;
    dot_step<Elements, queries>(packed, last ? few : rows + t, dims, last ? products : out + t,
                                last ? step : out_stride, before_line);
  }
  for (std::size_t i = 0; whole + i < count; ++i) {
    for (std::size_t q = 0; q < queries; ++q) {
      out[q * out_stride + whole + i] = products[q * step + i];
    }
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
