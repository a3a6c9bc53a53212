// Keys as f32: see terrace/kernels/rows.hpp.
#include "host/row_arguments.hpp"
#include "host/widen_keys.hpp"
#include "terrace/kernels/row_address.hpp"
#include "terrace/kernels/rows.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/read_keys.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

template <typename Elements>
HWY_INLINE void widen_as(const std::byte* source, std::size_t count, float* target) {
  const FloatTag tag;
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(Elements::load(source + i * Elements::bytes), tag, target + i);
  }
  if (i == count) return;
  alignas(64) float rest[lanes];
  hn::Store(load_tail<Elements>(source + i * Elements::bytes, count - i), tag, rest);
  for (std::size_t j = 0; i < count; ++i, ++j) target[i] = rest[j];
}

void widen(const std::byte* source, Dtype dtype, std::size_t count, float* target) {
  switch (dtype) {
    case Dtype::f32:
      return widen_as<F32Elements>(source, count, target);
    case Dtype::f16:
      return widen_as<F16Elements>(source, count, target);
    case Dtype::bf16:
      return widen_as<Bf16Elements>(source, count, target);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(widen);

void widen_keys(const KeySlice& slice, float* target) noexcept {
  const std::size_t skip_bytes = slice.first_dim * size_bytes(slice.shape.dtype);
  const auto widen_row = HWY_DYNAMIC_DISPATCH(widen);
  for (std::size_t p = slice.tokens.begin; p < slice.tokens.end; ++p, target += slice.dims) {
    const std::byte* row = row_address(slice.shape, slice.rows, slice.head, p);
    widen_row(row + skip_bytes, slice.shape.dtype, slice.dims, target);
  }
}

Status read_keys(const KeySlice& slice, float* target) noexcept {
  const TokenRows source{slice.shape, slice.rows, slice.tokens};
  TERRACE_TRY(check_rows("read_keys", source));
  const std::size_t row_dims = 2 * slice.shape.head_dim;
  if (slice.first_dim > row_dims || slice.dims > row_dims - slice.first_dim) {
    return fail(Errc::invalid_argument, "read_keys: {} dimensions from {} on are no part of a row",
                slice.dims, slice.first_dim);
  }
  if (slice.head >= slice.shape.kv_heads) {
    return fail(Errc::invalid_argument, "read_keys: head {} of {}; use one that is there",
                slice.head, slice.shape.kv_heads);
  }
  if (slice.tokens.empty() || slice.dims == 0) return {};
  if (target == nullptr) return fail(Errc::invalid_argument, "read_keys: target must be given");
  if (overlaps_rows(range_of(target, slice.tokens.size() * slice.dims), source)) {
    return fail(Errc::invalid_argument, "read_keys: target must not overlap rows");
  }
  widen_keys(slice, target);
  return {};
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
