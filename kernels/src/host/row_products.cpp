#include "host/row_products.hpp"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/row_products.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/dot_rows-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t packed_dim_max = 2048;  // a page has bounds above and below: two keys

template <typename Elements, std::size_t count>
HWY_INLINE void products_of(const RowProducts& rows) {
  alignas(64) float packed[count * packed_dim_max];
  pack_queries(rows.queries, count, rows.dims, rows.scale, packed);
  dot_rows<Elements, count>(packed, rows.keys, rows.key_count, rows.dims, rows.logits, rows.stride,
                            [] HWY_ATTR {});
}

template <typename Elements>
HWY_INLINE void products_for(const RowProducts& rows) {
  if (rows.query_count == 4) return products_of<Elements, 4>(rows);
  if (rows.query_count == 3) return products_of<Elements, 3>(rows);
  if (rows.query_count == 2) return products_of<Elements, 2>(rows);
  return products_of<Elements, 1>(rows);
}

/// Up to 4 queries.
void products(const RowProducts& rows) {
  switch (rows.dtype) {
    case Dtype::f32:
      return products_for<F32Elements>(rows);
    case Dtype::f16:
      return products_for<F16Elements>(rows);
    case Dtype::bf16:
      return products_for<Bf16Elements>(rows);
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
