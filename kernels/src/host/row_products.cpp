#include "host/row_products.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "host/scores.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/row_products.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/dot_rows-inl.hpp"

#ifndef TERRACE_KERNELS_ROW_PRODUCTS_ONCE
#define TERRACE_KERNELS_ROW_PRODUCTS_ONCE
namespace terrace::kernels::host {

/// Up to 4 scaled queries with zeros behind each up to a whole vector.
struct ScaledQueries {
  static constexpr std::size_t count_max = 4;
  static constexpr std::size_t stride = 1024;  // KvShape::validate
  alignas(64) std::array<float, count_max * stride> elements;
};

}  // namespace terrace::kernels::host
#endif

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

template <typename Elements>
HWY_INLINE void products_of(const ScaledQueries& queries, std::size_t dims,
                            const RowProducts& rows) {
  const auto none = [](std::size_t) HWY_ATTR {};
  const float* q = queries.elements.data();
  constexpr std::size_t stride = ScaledQueries::stride;
  if (rows.query_count == 4) {
    return dot_rows<Elements, 4>(q, stride, rows.keys, rows.key_count, dims, rows.logits,
                                 rows.stride, none);
  }
  if (rows.query_count == 2) {
    return dot_rows<Elements, 2>(q, stride, rows.keys, rows.key_count, dims, rows.logits,
                                 rows.stride, none);
  }
  dot_rows<Elements, 1>(q, stride, rows.keys, rows.key_count, dims, rows.logits, rows.stride, none);
}

void products(const ScaledQueries& queries, const KvShape& shape, const RowProducts& rows) {
  switch (shape.dtype) {
    case Dtype::f32:
      return products_of<F32Elements>(queries, shape.head_dim, rows);
    case Dtype::f16:
      return products_of<F16Elements>(queries, shape.head_dim, rows);
    case Dtype::bf16:
      return products_of<Bf16Elements>(queries, shape.head_dim, rows);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(products);

void row_products(const KvShape& shape, const RowProducts& rows) noexcept {
  if (rows.key_count == 0) return;
  const float scale = logit_scale(shape);
  ScaledQueries queries;
  std::size_t count = 0;
  for (std::size_t done = 0; done < rows.query_count; done += count) {
    count = std::bit_floor(std::min(ScaledQueries::count_max, rows.query_count - done));
    for (std::size_t q = 0; q < count; ++q) {
      const float* source = rows.queries + (done + q) * shape.head_dim;
      float* target = &queries.elements[q * ScaledQueries::stride];
      for (std::size_t i = 0; i < shape.head_dim; ++i) target[i] = source[i] * scale;
      std::fill(target + shape.head_dim, &queries.elements[(q + 1) * ScaledQueries::stride], 0.0F);
    }
    RowProducts some = rows;
    some.query_count = count;
    some.logits = rows.logits + done * rows.stride;
    HWY_DYNAMIC_DISPATCH(products)(queries, shape, some);
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
