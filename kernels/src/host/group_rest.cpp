#include "host/group_rest.hpp"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/group_rest.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/numbers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

/// The rest's numbers from `at` on, as `load` loads those of a row.
template <typename Elements, typename Load>
HWY_INLINE Floats rest_at(const GroupRest& op, std::size_t at, Load load) {
  const FloatTag tag;
  const std::size_t begin = at * Elements::bytes;
  Floats sum = hn::Mul(load(op.mean + begin), hn::Set(tag, static_cast<float>(op.size)));
  for (std::size_t i = 0; i < op.count; ++i) sum = hn::Sub(sum, load(op.rows[i] + begin));
  return hn::Mul(sum, hn::Set(tag, 1.0F / static_cast<float>(op.size - op.count)));
}

template <typename Elements, typename Numbers>
HWY_INLINE void average_rest_as(const GroupRest& op) {
  const auto all = [](const std::byte* from) { return Elements::load(from); };
  std::size_t i = 0;
  for (; i + lanes <= op.numbers; i += lanes) {
    Numbers::store(rest_at<Elements>(op, i, all), op.rest + i * Elements::bytes);
  }
  const std::size_t left = op.numbers - i;
  if (left == 0) return;
  const auto some = [left](const std::byte* from) { return load_tail<Elements>(from, left); };
  alignas(64) std::byte last[lanes * Elements::bytes];
  Numbers::store(rest_at<Elements>(op, i, some), last);
  std::memcpy(op.rest + i * Elements::bytes, last, left * Elements::bytes);
}

void average_rest_on_target(const GroupRest& op) {
  switch (op.dtype) {
    case Dtype::f32:
      return average_rest_as<F32Elements, F32Numbers>(op);
    case Dtype::f16:
      return average_rest_as<F16Elements, F16Numbers>(op);
    case Dtype::bf16:
      return average_rest_as<Bf16Elements, Bf16Numbers>(op);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(average_rest_on_target);

void average_rest(const GroupRest& op) noexcept {
  HWY_DYNAMIC_DISPATCH(average_rest_on_target)(op);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
