#include "host/row_sums.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/row_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

template <typename Elements>
HWY_INLINE void add_row_as(const std::byte* row, float weight, std::size_t count, float* sums) {
  const FloatTag tag;
  const Floats factor = hn::Set(tag, weight);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const Floats numbers = Elements::load(row + i * Elements::bytes);
    hn::StoreU(hn::MulAdd(numbers, factor, hn::LoadU(tag, sums + i)), tag, sums + i);
  }
  if (i == count) return;
  alignas(64) float rest[lanes];
  hn::Store(load_tail<Elements>(row + i * Elements::bytes, count - i), tag, rest);
  for (std::size_t j = 0; i < count; ++i, ++j) sums[i] += rest[j] * weight;
}

void add_row_numbers(const std::byte* row, Dtype dtype, float weight, std::size_t count,
                     float* sums) {
  switch (dtype) {
    case Dtype::f32:
      return add_row_as<F32Elements>(row, weight, count, sums);
    case Dtype::f16:
      return add_row_as<F16Elements>(row, weight, count, sums);
    case Dtype::bf16:
      return add_row_as<Bf16Elements>(row, weight, count, sums);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(add_row_numbers);

void add_row(const std::byte* row, Dtype dtype, float weight, std::size_t count,
             float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(add_row_numbers)(row, dtype, weight, count, sums);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
