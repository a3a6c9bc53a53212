#include "host/group_weights.hpp"

#include <algorithm>
#include <limits>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/group_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/exp-inl.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr std::size_t unroll = 4;        // independent vectors in flight
constexpr std::size_t sum_block = 4096;  // exponentials summed before they are added to the whole
constexpr float minus_infinity = -std::numeric_limits<float>::infinity();
constexpr float log2_e = std::numbers::log2e_v<float>;
constexpr float largest = std::numeric_limits<float>::max();

/// Makes NaN -inf and +inf the largest float.
HWY_INLINE Floats limit(Floats logits) {
  const FloatTag tag;
  const Floats known = hn::IfThenElse(hn::Eq(logits, logits), logits, hn::Set(tag, minus_infinity));
  return hn::Min(known, hn::Set(tag, largest));
}

/// Limits a row in place and returns its maximum.
HWY_INLINE float limit_row(float* row, std::size_t count) {
  const FloatTag tag;
  Floats maximum = hn::Set(tag, minus_infinity);
  for (std::size_t i = 0; i < count; i += lanes) {
    const Floats logits = limit(hn::LoadU(tag, row + i));
    hn::StoreU(logits, tag, row + i);
    maximum = hn::Max(maximum, logits);
  }
  return max_of_lanes(maximum);
}

/// Replaces logits by exp(logit - maximum) and returns their sum, each taken counts[i] times.
template <bool counted>
HWY_INLINE float exponentiate_row(float* row, const std::uint32_t* counts, std::size_t count,
                                  float maximum) {
  const FloatTag tag;
  [[maybe_unused]] const hn::RebindToSigned<FloatTag> count_tag;
  const Floats base = hn::Set(tag, maximum == minus_infinity ? 0.0F : maximum);
  float whole = 0;
  for (std::size_t begin = 0; begin < count; begin += sum_block) {
    const std::size_t end = HWY_MIN(count, begin + sum_block);
    Floats sums[unroll];
    for (std::size_t u = 0; u < unroll; ++u) sums[u] = hn::Zero(tag);
    for (std::size_t i = begin; i < end; i += unroll * lanes) {
#pragma GCC unroll 4
      for (std::size_t u = 0; u < unroll; ++u) {
        float* at = row + i + u * lanes;
        const Floats logits = hn::Sub(hn::LoadU(tag, at), base);
        const Floats weights = exp2_nonpositive(hn::Mul(logits, hn::Set(tag, log2_e)));
        hn::StoreU(weights, tag, at);
        if constexpr (counted) {
          const auto times = hn::ConvertTo(
              tag,
              hn::LoadU(count_tag, reinterpret_cast<const std::int32_t*>(counts) + i + u * lanes));
          sums[u] = hn::MulAdd(weights, times, sums[u]);
        } else {
          sums[u] = hn::Add(sums[u], weights);
        }
      }
    }
    whole += sum_of_lanes(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])));
  }
  return whole;
}

/// Merges factor * row into weights: by maximum or by sum. The first row replaces what is there.
template <bool by_maximum>
HWY_INLINE void merge_row(const float* row, std::size_t count, float factor, bool first,
                          float* weights) {
  const FloatTag tag;
  for (std::size_t i = 0; i < count; i += lanes) {
    const Floats scaled = hn::Mul(hn::LoadU(tag, row + i), hn::Set(tag, factor));
    const Floats before = first ? hn::Zero(tag) : hn::LoadU(tag, weights + i);
    hn::StoreU(by_maximum ? hn::Max(before, scaled) : hn::Add(before, scaled), tag, weights + i);
  }
}

/// Adds limited logits to the sums so far, which stay limited: beyond all floats they would meet
/// -inf and be NaN.
HWY_INLINE void add_logits(const float* row, std::size_t count, float* sums) {
  const FloatTag tag;
  for (std::size_t i = 0; i < count; i += lanes) {
    const Floats sum = hn::Add(hn::LoadU(tag, sums + i), hn::LoadU(tag, row + i));
    hn::StoreU(limit(sum), tag, sums + i);
  }
}

void reduce_rows(const GroupLogits& logits, GroupReduction reduction, float* weights) {
  const std::size_t size = logits.size;
  for (std::size_t q = 0; q < logits.group; ++q) {
    float* row = logits.rows + q * logits.stride;
    const float maximum = limit_row(row, size);
    if (reduction == GroupReduction::sum_logits) {
      if (q == 0) std::fill_n(weights, size, 0.0F);
      if (maximum != minus_infinity) add_logits(row, size, weights);
      continue;
    }
    const float sum = logits.counts == nullptr
                          ? exponentiate_row<false>(row, nullptr, size, maximum)
                          : exponentiate_row<true>(row, logits.counts, size, maximum);
    const float factor = sum > 0 ? 1.0F / sum : 0.0F;
    if (reduction == GroupReduction::max_softmax) {
      merge_row<true>(row, size, factor, q == 0, weights);
    } else {
      merge_row<false>(row, size, factor, q == 0, weights);
    }
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(reduce_rows);

void reduce_group(const GroupLogits& logits, GroupReduction reduction, float* weights) noexcept {
  HWY_DYNAMIC_DISPATCH(reduce_rows)(logits, reduction, weights);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
