// Conversions of numbers: see terrace/kernels/convert_queries.hpp.
#include "terrace/kernels/convert_queries.hpp"

#include <algorithm>

#include "host/convert_numbers.hpp"
#include "terrace/core/bytes.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/convert_queries.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/numbers-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

template <typename From, typename To>
HWY_INLINE void convert_as(const std::byte* source, std::size_t count, std::byte* target) {
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    To::store(From::load(source + i * From::bytes), target + i * To::bytes);
  }
  if (i == count) return;
  alignas(64) std::byte rest[lanes * To::bytes];
  To::store(load_tail<From>(source + i * From::bytes, count - i), rest);
  std::memcpy(target + i * To::bytes, rest, (count - i) * To::bytes);
}

template <typename From>
void convert_from(const std::byte* source, std::size_t count, std::byte* target, Dtype to) {
  switch (to) {
    case Dtype::f32:
      return convert_as<From, F32Numbers>(source, count, target);
    case Dtype::f16:
      return convert_as<From, F16Numbers>(source, count, target);
    case Dtype::bf16:
      return convert_as<From, Bf16Numbers>(source, count, target);
  }
}

/// Converts `count` numbers side by side.
void convert(const std::byte* source, Dtype from, std::size_t count, std::byte* target, Dtype to) {
  switch (from) {
    case Dtype::f32:
      return convert_from<F32Numbers>(source, count, target, to);
    case Dtype::f16:
      return convert_from<F16Numbers>(source, count, target, to);
    case Dtype::bf16:
      return convert_from<Bf16Numbers>(source, count, target, to);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(convert);

void convert_numbers(const std::byte* source, Dtype from, std::size_t count, std::byte* target,
                     Dtype to) noexcept {
  HWY_DYNAMIC_DISPATCH(convert)(source, from, count, target, to);
}

namespace {

// Some ten microseconds: long beside waking a thread.
constexpr std::size_t part_numbers = 32'768;

}  // namespace

void convert_queries(const ConvertQueries& op, Parallel& threads) {
  const std::size_t numbers = op.shape.query_heads * op.shape.head_dim;
  const std::size_t part_tokens = std::max<std::size_t>(1, part_numbers / numbers);
  const auto convert_token = HWY_DYNAMIC_DISPATCH(convert);
  threads.for_each(divide_up(op.tokens, part_tokens), [&](std::size_t part) {
    const std::size_t begin = part * part_tokens;
    for (std::size_t t = begin; t < std::min(op.tokens, begin + part_tokens); ++t) {
      convert_token(op.source + t * op.source_stride, op.from, numbers,
                    op.target + t * op.target_stride, op.to);
    }
  });
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
