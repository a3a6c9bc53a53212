#include "host/row_products.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/row_products.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/dot_rows-inl.hpp"
#include "host/rows_ahead-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t packed_dim_max = 2048;  // a page has bounds above and below: two keys
constexpr std::size_t keys_ahead = 32;        // between those that are multiplied and asked for

/// If `fixed_dims` is not 0 it is the number of dimensions, and loops over it are unrolled.
template <typename Elements, std::size_t count, std::size_t fixed_dims>
HWY_INLINE void products_of(const RowProducts& rows) {
  const std::size_t dims = fixed_dims != 0 ? fixed_dims : rows.dims;
  alignas(64) float packed[count * (fixed_dims != 0 ? fixed_dims : packed_dim_max)];
  pack_queries(rows.queries, count, dims, rows.scale, packed);
  const std::size_t bytes = dims * Elements::bytes;
  const std::size_t at_once = rows.ask_ahead ? keys_ahead : rows.key_count;
  if (rows.ask_ahead) {
    for (std::size_t i = 0; i < HWY_MIN(at_once, rows.key_count); ++i) {
      prefetch(rows.keys[i], bytes);
    }
  }
  for (std::size_t i = 0; i < rows.key_count; i += at_once) {
    const std::size_t left = rows.key_count - i;
    const std::size_t some = HWY_MIN(at_once, left);
    RowsAhead ahead(rows.keys + i + some, HWY_MIN(at_once, left - some), bytes);
    dot_rows<Elements, count>(packed, rows.keys + i, some, dims, rows.logits + i, rows.stride,
                              [&] HWY_ATTR { ahead.ask_line(); });
  }
}

template <typename Elements, std::size_t fixed_dims = 0>
HWY_INLINE void products_for(const RowProducts& rows) {
  if (rows.query_count == 4) return products_of<Elements, 4, fixed_dims>(rows);
  if (rows.query_count == 3) return products_of<Elements, 3, fixed_dims>(rows);
  if (rows.query_count == 2) return products_of<Elements, 2, fixed_dims>(rows);
  return products_of<Elements, 1, fixed_dims>(rows);
}

/// The dimensions of most models have code of their own, but not on the level without vectors.
template <typename Elements>
HWY_INLINE void products_by_dims(const RowProducts& rows) {
  if constexpr (HWY_TARGET != HWY_EMU128) {
    if (rows.dims == 64) return products_for<Elements, 64>(rows);
    if (rows.dims == 128) return products_for<Elements, 128>(rows);
  }
  products_for<Elements>(rows);
}

/// Up to 4 queries.
void products(const RowProducts& rows) {
  switch (rows.dtype) {
    case Dtype::f32:
      return products_for<F32Elements>(rows);
    case Dtype::f16:
      return products_by_dims<F16Elements>(rows);
    case Dtype::bf16:
      return products_by_dims<Bf16Elements>(rows);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(products);

void row_products(const RowProducts& rows) noexcept {
  if (rows.key_count == 0) return;
  constexpr std::size_t queries_at_once = 4;
  for (std::size_t done = 0; done < rows.query_count; done += queries_at_once) {
    RowProducts some = rows;
    some.queries = rows.queries + done * rows.dims;
    some.query_count = std::min(queries_at_once, rows.query_count - done);
    some.logits = rows.logits + done * rows.stride;
    HWY_DYNAMIC_DISPATCH(products)(some);
  }
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
