#include "host/rest_weights.hpp"

#include <algorithm>
#include <limits>
#include <numbers>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/rest_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/exp-inl.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

constexpr float minus_infinity = -std::numeric_limits<float>::infinity();

void leave_out(const RestLogits& logits, const float* sums) {
  const FloatTag tag;
  const GroupsLeft& left = logits.left;
  for (std::size_t i = 0; i < left.stride; i += lanes) {
    const Floats whole = hn::Mul(hn::LoadU(tag, logits.groups + i), hn::LoadU(tag, left.sizes + i));
    const Floats rest = hn::Sub(whole, hn::LoadU(tag, sums + i));
    const Floats logit =
        hn::MulAdd(rest, hn::LoadU(tag, left.per_left + i), hn::LoadU(tag, left.bias + i));
    hn::StoreU(logit, tag, logits.groups + i);
  }
}

HWY_INLINE Floats largest_of(const float* logits, std::size_t count, Floats largest) {
  for (std::size_t i = 0; i < count; i += lanes) {
    largest = hn::Max(largest, hn::LoadU(FloatTag(), logits + i));
  }
  return largest;
}

HWY_INLINE Floats weights_at(const float* logits, Floats base) {
  const FloatTag tag;
  const Floats below = hn::Sub(hn::LoadU(tag, logits), base);
  return exp2_nonpositive(hn::Mul(below, hn::Set(tag, std::numbers::log2e_v<float>)));
}

RestSoftmax weigh(const RestLogits& logits, float* shares) {
  const FloatTag tag;
  const hn::RebindToSigned<FloatTag> group_tag;
  const GroupsLeft& left = logits.left;
  const Floats largest =
      largest_of(logits.groups, left.stride,
                 largest_of(logits.rows, logits.row_stride, hn::Set(tag, minus_infinity)));
  const float maximum = max_of_lanes(largest);
  // If all logits are -inf, any finite base gives weights 0.
  const Floats base = hn::Set(tag, maximum == minus_infinity ? 0.0F : maximum);
  Floats sum = hn::Zero(tag);
  for (std::size_t i = 0; i < left.stride; i += lanes) {
    const Floats weight = weights_at(logits.groups + i, base);
    const Floats share = hn::Mul(weight, hn::LoadU(tag, left.per_left + i));
    sum = hn::Add(sum, weight);
    hn::StoreU(share, tag, shares + i);
    hn::StoreU(hn::Mul(share, hn::LoadU(tag, left.sizes + i)), tag, logits.groups + i);
  }
  for (std::size_t i = 0; i < logits.row_stride; i += lanes) {
    const Floats weight = weights_at(logits.rows + i, base);
    const auto groups =
        hn::LoadU(group_tag, reinterpret_cast<const std::int32_t*>(logits.group_of) + i);
    sum = hn::Add(sum, weight);
    hn::StoreU(hn::Sub(weight, hn::GatherIndex(tag, shares, groups)), tag, logits.rows + i);
  }
  return {maximum, sum_of_lanes(sum)};
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {

HWY_EXPORT(leave_out);
HWY_EXPORT(weigh);

void leave_selected_out(const RestLogits& logits, float* sums) noexcept {
  std::fill_n(sums, logits.left.stride, 0.0F);
  for (std::size_t i = 0; i < logits.row_count; ++i) sums[logits.group_of[i]] += logits.rows[i];
  sums[logits.none] = 0;
  HWY_DYNAMIC_DISPATCH(leave_out)(logits, sums);
}

RestSoftmax weigh_values(const RestLogits& logits, float* shares) noexcept {
  return HWY_DYNAMIC_DISPATCH(weigh)(logits, shares);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
