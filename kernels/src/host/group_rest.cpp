#include "host/group_rest.hpp"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/group_rest.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/numbers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t vectors_at_once = 8;  // sums that registers hold beside what is read

/// Writes `vectors` vectors of the rest's numbers, from `at` on. `load` and `store` see a vector.
template <typename Elements, std::size_t vectors, typename Load, typename Store>
HWY_INLINE void average_rest(const GroupRest& group, std::size_t at, Load load, Store store) {
  const FloatTag tag;
  constexpr std::size_t vector_bytes = lanes * Elements::bytes;
  const std::size_t begin = at * Elements::bytes;
  const Floats size = hn::Set(tag, static_cast<float>(group.size));
  Floats sums[vectors];
#pragma GCC unroll 8
  for (std::size_t v = 0; v < vectors; ++v) {
    sums[v] = hn::Mul(load(group.mean + begin + v * vector_bytes), size);
  }
  for (std::size_t i = 0; i < group.count; ++i) {
#pragma GCC unroll 8
    for (std::size_t v = 0; v < vectors; ++v) {
      sums[v] = hn::Sub(sums[v], load(group.rows[i] + begin + v * vector_bytes));
    }
  }
  const Floats share = hn::Set(tag, 1.0F / static_cast<float>(group.size - group.count));
#pragma GCC unroll 8
  for (std::size_t v = 0; v < vectors; ++v) {
    store(hn::Mul(sums[v], share), group.rest + begin + v * vector_bytes);
  }
}

template <typename Elements, typename Numbers>
HWY_INLINE void average_rest_as(const GroupRest& group, std::size_t numbers) {
  const auto load = [](const std::byte* from) HWY_ATTR { return Elements::load(from); };
  const auto store = [](Floats rest, std::byte* to) HWY_ATTR { Numbers::store(rest, to); };
  std::size_t i = 0;
  for (; i + vectors_at_once * lanes <= numbers; i += vectors_at_once * lanes) {
    average_rest<Elements, vectors_at_once>(group, i, load, store);
  }
  for (; i + lanes <= numbers; i += lanes) average_rest<Elements, 1>(group, i, load, store);
  const std::size_t left = numbers - i;
  if (left == 0) return;
  average_rest<Elements, 1>(
      group, i, [left](const std::byte* from) HWY_ATTR { return load_tail<Elements>(from, left); },
      [left](Floats rest, std::byte* to) HWY_ATTR {
        alignas(64) std::byte last[lanes * Elements::bytes];
        Numbers::store(rest, last);
        std::memcpy(to, last, left * Elements::bytes);
      });
}

template <typename Elements, typename Numbers>
HWY_INLINE void average_rests_as(std::size_t numbers, std::span<const GroupRest> groups) {
  for (const GroupRest& group : groups) average_rest_as<Elements, Numbers>(group, numbers);
}

void average_rests_on_target(Dtype dtype, std::size_t numbers, std::span<const GroupRest> groups) {
  switch (dtype) {
    case Dtype::f32:
      return average_rests_as<F32Elements, F32Numbers>(numbers, groups);
    case Dtype::f16:
      return average_rests_as<F16Elements, F16Numbers>(numbers, groups);
    case Dtype::bf16:
      return average_rests_as<Bf16Elements, Bf16Numbers>(numbers, groups);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(average_rests_on_target);

void average_rests(Dtype dtype, std::size_t numbers, std::span<const GroupRest> groups) noexcept {
  HWY_DYNAMIC_DISPATCH(average_rests_on_target)(dtype, numbers, groups);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
