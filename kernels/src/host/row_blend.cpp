#include "host/row_blend.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/row_blend.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/add_rows-inl.hpp"
#include "host/rows_ahead-inl.hpp"

#ifndef TERRACE_KERNELS_ROW_BLEND_ONCE
#define TERRACE_KERNELS_ROW_BLEND_ONCE
namespace terrace::kernels::host {

constexpr std::size_t sums_at_once = 4;

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t rows_at_once = 32;  // few enough to stay in the first cache for all slabs

template <typename Elements, std::size_t count>
HWY_INLINE void blend_as(const RowBlend& blend) {
  alignas(64) float sums[count * KvShape::head_dim_max];
  const std::size_t stride = (blend.numbers + lanes - 1) / lanes * lanes;
  for (std::size_t s = 0; s < count; ++s) {
    float* const sum = sums + s * stride;
    std::copy_n(blend.sums + s * blend.sum_stride, blend.numbers, sum);
    std::fill(sum + blend.numbers, sum + stride, 0.0F);
  }
  const std::size_t bytes = blend.numbers * Elements::bytes;
  for (std::size_t i = 0; i < HWY_MIN(rows_at_once, blend.row_count); ++i) {
    prefetch(blend.rows[i] + blend.begin, bytes);
  }
  for (std::size_t i = 0; i < blend.row_count; i += rows_at_once) {
    const std::size_t left = blend.row_count - i;
    const std::size_t some = HWY_MIN(rows_at_once, left);
    RowsAhead ahead(blend.rows + i + some, HWY_MIN(rows_at_once, left - some), bytes, blend.begin);
    add_rows<Elements, count>({.weights = blend.weights + i,
                               .weight_stride = blend.weight_stride,
                               .rows = blend.rows + i,
                               .count = some,
                               .begin = blend.begin,
                               .numbers = blend.numbers,
                               .sums = sums,
                               .sum_stride = stride},
                              [&] HWY_ATTR { ahead.ask_line(); });
  }
  for (std::size_t s = 0; s < count; ++s) {
    std::copy_n(sums + s * stride, blend.numbers, blend.sums + s * blend.sum_stride);
  }
}

template <typename Elements>
HWY_INLINE void blend_of(const RowBlend& blend) {
  if (blend.sum_count == 4) return blend_as<Elements, 4>(blend);
  if (blend.sum_count == 3) return blend_as<Elements, 3>(blend);
  if (blend.sum_count == 2) return blend_as<Elements, 2>(blend);
  return blend_as<Elements, 1>(blend);
}

/// Up to 4 sums.
void blend_on_target(const RowBlend& blend) {
  switch (blend.dtype) {
    case Dtype::f32:
      return blend_of<F32Elements>(blend);
    case Dtype::f16:
      return blend_of<F16Elements>(blend);
    case Dtype::bf16:
      return blend_of<Bf16Elements>(blend);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(blend_on_target);

void blend_rows(const RowBlend& blend) noexcept {
  if (blend.row_count == 0) return;
  for (std::size_t done = 0; done < blend.sum_count; done += sums_at_once) {
    RowBlend some = blend;
    some.weights = blend.weights + done * blend.weight_stride;
    some.sums = blend.sums + done * blend.sum_stride;
    some.sum_count = std::min(sums_at_once, blend.sum_count - done);
    HWY_DYNAMIC_DISPATCH(blend_on_target)(some);
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
