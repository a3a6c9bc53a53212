// The online softmax of many query heads, a piece of their logits after the other. Included once
// per target, as Highway's foreach_target.h demands.
#if defined(TERRACE_KERNELS_TILE_SOFTMAX_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef TERRACE_KERNELS_TILE_SOFTMAX_INL
#undef TERRACE_KERNELS_TILE_SOFTMAX_INL
#else
#define TERRACE_KERNELS_TILE_SOFTMAX_INL
#endif

#include <cstddef>
#include <limits>

#include "host/exp-inl.hpp"
#include "host/tile_part.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

/// Returns the maxima of vectors of logits, filling the last vector up with -inf.
HWY_INLINE Floats maxima_of(float* HWY_RESTRICT logits, std::size_t count) {
  const FloatTag tag;
  const std::size_t end = (count + lanes - 1) / lanes * lanes;
  for (std::size_t t = count; t < end; ++t) logits[t] = minus_infinity;
  Floats maxima = hn::Set(tag, minus_infinity);
  for (std::size_t t = 0; t < end; t += lanes) {
    maxima = hn::Max(maxima, hn::Load(tag, logits + t));
  }
  return maxima;
}

/// Turns vectors of logits into weights 2^(logit - base), and returns their sums.
HWY_INLINE Floats exponentiate(float* HWY_RESTRICT weights, std::size_t count, float base) {
  const FloatTag tag;
  Floats sums = hn::Zero(tag);
  for (std::size_t t = 0; t < count; t += lanes) {
    const Floats logits = hn::Load(tag, weights + t);
    const Floats weight = exp2_nonpositive(hn::Sub(logits, hn::Set(tag, base)));
    hn::Store(weight, tag, weights + t);
    sums = hn::Add(sums, weight);
  }
  return sums;
}

template <typename Tag>
HWY_INLINE Quad maxima_of_blocks(Tag tag, hn::Vec<Tag> v) {
  if constexpr (hn::MaxLanes(tag) <= 4) {
    return v;
  } else {
    const hn::Half<Tag> half;
    return maxima_of_blocks(half, hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

/// Returns the maxima of four vectors, side by side.
HWY_INLINE Quad maxima_of_lanes(const Floats* v) {
  const FloatTag tag;
  const hn::Repartition<std::uint64_t, FloatTag> pairs;
  const auto pair_up = [&](Floats a, Floats b) HWY_ATTR {
    return hn::BitCast(pairs,
                       hn::Max(hn::InterleaveLower(tag, a, b), hn::InterleaveUpper(tag, a, b)));
  };
  const auto first = pair_up(v[0], v[1]);
  const auto second = pair_up(v[2], v[3]);
  return maxima_of_blocks(tag,
                          hn::Max(hn::BitCast(tag, hn::InterleaveLower(pairs, first, second)),
                                  hn::BitCast(tag, hn::InterleaveUpper(pairs, first, second))));
}

/// Turns the logits of four heads from head `first` on into weights, and adds these up. Heads from
/// `end` on have no weights.
HWY_INLINE void weigh_four(PartMemory& memory, std::size_t first, std::size_t end) {
  const QuadTag tag;
  Floats of_head[4];
  const auto for_heads = [&](auto compute) HWY_ATTR {
#pragma GCC unroll 4
    for (std::size_t i = 0; i < 4; ++i) {
      of_head[i] = hn::Zero(FloatTag());
      if (first + i >= end) continue;
      of_head[i] = compute(memory.weights + (first + i) * piece_rows, first + i);
    }
  };
  for_heads([&](float* logits, std::size_t h)
                HWY_ATTR { return maxima_of(logits, memory.seen[h]); });
  const Quad before = hn::LoadU(tag, memory.maxima + first);
  const Quad maximum = hn::Max(before, maxima_of_lanes(of_head));
  // If all logits so far are -inf, any finite base gives weights of 0.
  const Quad base = hn::IfThenZeroElse(hn::Eq(maximum, hn::Set(tag, minus_infinity)), maximum);
  const Quad factor = exp2_nonpositive(hn::Sub(before, base));
  hn::StoreU(maximum, tag, memory.maxima + first);
  hn::StoreU(base, tag, memory.bases + first);
  hn::StoreU(factor, tag, memory.factors + first);
  for_heads([&](float* logits, std::size_t h)
                HWY_ATTR { return exponentiate(logits, memory.seen[h], memory.bases[h]); });
  const Quad sum = sums_of_lanes(of_head[0], of_head[1], of_head[2], of_head[3]);
  const Quad sum_before = hn::LoadU(tag, memory.sums + first);
  hn::StoreU(hn::MulAdd(sum_before, factor, sum), tag, memory.sums + first);
}

/// Turns the logits of heads [first, end) into weights. A logit of NaN or +inf gives weights of
/// NaN, and with them sums of NaN.
HWY_NOINLINE void weigh_heads(PartMemory& memory, std::size_t first, std::size_t end) {
  for (std::size_t h = first; h < end; h += 4) weigh_four(memory, h, end);
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // once per target
