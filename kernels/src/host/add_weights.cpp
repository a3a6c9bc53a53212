#include "host/add_weights.hpp"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "host/add_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "host/exp-inl.hpp"
#include "host/vectors-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace terrace::kernels::host::HWY_NAMESPACE {

void add_weights_on_target(const KeptWeights& head, float* sums) {
  if (head.sum == 0) return;
  const FloatTag tag;
  constexpr std::size_t tiles_max = attention_split / tile_rows;
  float bases[tiles_max] = {};
  alignas(64) float factors[tiles_max];
  std::copy_n(head.bases, divide_up(head.count, tile_rows), bases);
  const Floats share = hn::Set(tag, 1.0F / head.sum);
  for (std::size_t i = 0; i < tiles_max; i += lanes) {
    const Floats power = hn::Sub(hn::LoadU(tag, bases + i), hn::Set(tag, head.maximum));
    hn::Store(hn::Mul(exp2_nonpositive(power), share), tag, factors + i);
  }
  std::size_t i = 0;
  for (; i + lanes <= head.count; i += lanes) {
    const Floats factor = hn::Set(tag, factors[i / tile_rows]);
    const Floats sum = hn::LoadU(tag, sums + i);
    hn::StoreU(hn::MulAdd(hn::LoadU(tag, head.weights + i), factor, sum), tag, sums + i);
  }
  for (; i < head.count; ++i) {
    sums[i] = std::fma(head.weights[i], factors[i / tile_rows], sums[i]);
  }
}

}  // namespace terrace::kernels::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::kernels::host {
namespace {

HWY_EXPORT(add_weights_on_target);

}  // namespace

void add_weights(const KeptWeights& head, float* sums) noexcept {
  HWY_DYNAMIC_DISPATCH(add_weights_on_target)(head, sums);
}

}  // namespace terrace::kernels::host
#endif  // HWY_ONCE
