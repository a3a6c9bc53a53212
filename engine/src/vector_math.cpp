#include "terrace/engine/vector_math.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

// Highway compiles this file once per instruction set and picks one at run time.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vector_math.cpp"
// clang-format off: foreach_target.h must come first
#include <hwy/foreach_target.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace terrace::engine::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using Halves = hn::Rebind<hwy::float16_t, Floats>;
using Bits16 = hn::Rebind<std::uint16_t, Floats>;
using Bits32 = hn::Rebind<std::uint32_t, Floats>;

/// Calls vector(i) for each whole vector and scalar(i) for what is left.
template <typename Vector, typename Scalar>
HWY_INLINE void sweep(std::size_t count, Vector vector, Scalar scalar) {
  const std::size_t lanes = hn::Lanes(Floats());
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) vector(i);
  for (; i < count; ++i) scalar(i);
}

void convert_f16(const std::byte* source, std::size_t count, float* target) {
  const Floats tag;
  sweep(
      count,
      [&](std::size_t i) HWY_ATTR {
        const auto* halves = reinterpret_cast<const hwy::float16_t*>(source + 2 * i);
        hn::StoreU(hn::PromoteTo(tag, hn::LoadU(Halves(), halves)), tag, target + i);
      },
      [&](std::size_t i) { target[i] = load_f32(source, Dtype::f16, i); });
}

void convert_bf16(const std::byte* source, std::size_t count, float* target) {
  const Floats tag;
  sweep(
      count,
      [&](std::size_t i) HWY_ATTR {
        const auto* narrow = reinterpret_cast<const std::uint16_t*>(source + 2 * i);
        const auto wide = hn::PromoteTo(Bits32(), hn::LoadU(Bits16(), narrow));
        hn::StoreU(hn::BitCast(tag, hn::ShiftLeft<16>(wide)), tag, target + i);
      },
      [&](std::size_t i) { target[i] = load_f32(source, Dtype::bf16, i); });
}

bool all_below(const float* values, std::size_t count, float limit) {
  const Floats tag;
  const auto limits = hn::Set(tag, limit);
  bool below = true;
  sweep(
      count,
      [&](std::size_t i) HWY_ATTR {
        below &= hn::AllTrue(tag, hn::Lt(hn::Abs(hn::LoadU(tag, values + i)), limits));
      },
      [&](std::size_t i) { below &= std::abs(values[i]) < limit; });
  return below;
}

double sum_of_squares(const float* source, std::size_t size) {
  const Floats tag;
  auto sums = hn::Zero(tag);
  double rest = 0;
  sweep(
      size,
      [&](std::size_t i) HWY_ATTR {
        const auto x = hn::LoadU(tag, source + i);
        sums = hn::MulAdd(x, x, sums);
      },
      [&](std::size_t i) { rest += static_cast<double>(source[i]) * source[i]; });
  return rest + hn::GetLane(hn::SumOfLanes(tag, sums));
}

void normalise(const float* source, const float* weight, std::size_t size, double epsilon,
               float* target) {
  const Floats tag;
  const double mean = sum_of_squares(source, size) / static_cast<double>(size);
  const auto scale = static_cast<float>(1.0 / std::sqrt(mean + epsilon));
  const auto scales = hn::Set(tag, scale);
  sweep(
      size,
      [&](std::size_t i) HWY_ATTR {
        const auto scaled = hn::Mul(hn::LoadU(tag, source + i), scales);
        hn::StoreU(hn::Mul(scaled, hn::LoadU(tag, weight + i)), tag, target + i);
      },
      [&](std::size_t i) { target[i] = source[i] * scale * weight[i]; });
}

void gate(const float* gates, const float* ups, std::size_t size, float* target) {
  const Floats tag;
  const auto one = hn::Set(tag, 1.0F);
  sweep(
      size,
      [&](std::size_t i) HWY_ATTR {
        const auto x = hn::LoadU(tag, gates + i);
        const auto silu = hn::Div(x, hn::Add(one, hn::Exp(tag, hn::Neg(x))));
        hn::StoreU(hn::Mul(silu, hn::LoadU(tag, ups + i)), tag, target + i);
      },
      [&](std::size_t i) { target[i] = gates[i] / (1.0F + std::exp(-gates[i])) * ups[i]; });
}

void rotate(const float* source, const float* cosine, const float* sine, std::size_t half,
            float* target) {
  const Floats tag;
  sweep(
      half,
      [&](std::size_t i) HWY_ATTR {
        const auto a = hn::LoadU(tag, source + i);
        const auto b = hn::LoadU(tag, source + half + i);
        const auto c = hn::LoadU(tag, cosine + i);
        const auto s = hn::LoadU(tag, sine + i);
        hn::StoreU(hn::Sub(hn::Mul(a, c), hn::Mul(b, s)), tag, target + i);
        hn::StoreU(hn::Add(hn::Mul(b, c), hn::Mul(a, s)), tag, target + half + i);
      },
      [&](std::size_t i) {
        const float a = source[i];
        const float b = source[half + i];
        target[i] = a * cosine[i] - b * sine[i];
        target[half + i] = b * cosine[i] + a * sine[i];
      });
}

/// Dot products of `rows` (1 or 4) consecutive weight rows with one vector. Four rows share each
/// load of the vector and hide the latency of the additions.
template <std::size_t rows>
HWY_INLINE void dot_rows(const float* HWY_RESTRICT weight, std::size_t inputs,
                         const float* HWY_RESTRICT source, bool accumulate,
                         float* HWY_RESTRICT target) {
  const Floats tag;
  const std::size_t lanes = hn::Lanes(tag);
  hn::Vec<Floats> even[rows];
  hn::Vec<Floats> odd[rows];
  for (std::size_t r = 0; r < rows; ++r) even[r] = odd[r] = hn::Zero(tag);
  std::size_t i = 0;
  for (; i + 2 * lanes <= inputs; i += 2 * lanes) {
    const auto x = hn::LoadU(tag, source + i);
    const auto y = hn::LoadU(tag, source + i + lanes);
    for (std::size_t r = 0; r < rows; ++r) {
      const float* row = weight + r * inputs + i;
      even[r] = hn::MulAdd(hn::LoadU(tag, row), x, even[r]);
      odd[r] = hn::MulAdd(hn::LoadU(tag, row + lanes), y, odd[r]);
    }
  }
  for (std::size_t r = 0; r < rows; ++r) {
    float sum = hn::GetLane(hn::SumOfLanes(tag, hn::Add(even[r], odd[r])));
    for (std::size_t j = i; j < inputs; ++j) sum += weight[r * inputs + j] * source[j];
    target[r] = accumulate ? target[r] + sum : sum;
  }
}

void multiply(const float* weight, std::size_t outputs, std::size_t inputs, const float* source,
              bool accumulate, float* target) {
  std::size_t o = 0;
  for (; o + 4 <= outputs; o += 4) {
    dot_rows<4>(weight + o * inputs, inputs, source, accumulate, target + o);
  }
  for (; o < outputs; ++o) {
    dot_rows<1>(weight + o * inputs, inputs, source, accumulate, target + o);
  }
}

/// Writes exp(values - shift) to target, if there is one, and returns the sum.
double exponentials(const float* values, std::size_t count, float shift, float* target) {
  const Floats tag;
  const auto shifts = hn::Set(tag, shift);
  // f32 sums stay short, double takes over: a vocabulary is too long for one f32 sum.
  constexpr std::size_t block = 256;
  double total = 0;
  for (std::size_t begin = 0; begin < count; begin += block) {
    auto sums = hn::Zero(tag);
    sweep(
        std::min(block, count - begin),
        [&](std::size_t i) HWY_ATTR {
          const auto x = hn::LoadU(tag, values + begin + i);
          const auto power = hn::Exp(tag, hn::Sub(x, shifts));
          if (target != nullptr) hn::StoreU(power, tag, target + begin + i);
          sums = hn::Add(sums, power);
        },
        [&](std::size_t i) {
          const float power = std::exp(values[begin + i] - shift);
          if (target != nullptr) target[begin + i] = power;
          total += power;
        });
    total += hn::GetLane(hn::SumOfLanes(tag, sums));
  }
  return total;
}

}  // namespace
}  // namespace terrace::engine::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace terrace::engine {
namespace {

HWY_EXPORT(convert_f16);
HWY_EXPORT(convert_bf16);
HWY_EXPORT(all_below);
HWY_EXPORT(normalise);
HWY_EXPORT(gate);
HWY_EXPORT(rotate);
HWY_EXPORT(multiply);
HWY_EXPORT(exponentials);

/// The least magnitude that rounds to infinity: half a step above the largest number.
float overflow_of(Dtype dtype) noexcept {
  switch (dtype) {
    case Dtype::f16:
      return 65520;
    case Dtype::bf16:
      return std::bit_cast<float>(0x7f7f8000U);
    case Dtype::f32:
      break;
  }
  return std::numeric_limits<float>::infinity();
}

}  // namespace

void convert_to_f32(const void* source, Dtype dtype, std::size_t count, float* target) noexcept {
  const auto* bytes = static_cast<const std::byte*>(source);
  switch (dtype) {
    case Dtype::f32:
      std::memcpy(target, bytes, count * sizeof(float));
      return;
    case Dtype::f16:
      HWY_DYNAMIC_DISPATCH(convert_f16)(bytes, count, target);
      return;
    case Dtype::bf16:
      HWY_DYNAMIC_DISPATCH(convert_bf16)(bytes, count, target);
      return;
  }
}

bool stay_finite(std::span<const float> values, Dtype dtype) noexcept {
  return HWY_DYNAMIC_DISPATCH(all_below)(values.data(), values.size(), overflow_of(dtype));
}

void rms_norm(const float* source, const float* weight, std::size_t size, double epsilon,
              float* target) noexcept {
  HWY_DYNAMIC_DISPATCH(normalise)(source, weight, size, epsilon, target);
}

void swiglu(const float* gates, const float* ups, std::size_t size, float* target) noexcept {
  HWY_DYNAMIC_DISPATCH(gate)(gates, ups, size, target);
}

void rotate_halves(const float* source, const float* cosine, const float* sine, std::size_t half,
                   float* target) noexcept {
  HWY_DYNAMIC_DISPATCH(rotate)(source, cosine, sine, half, target);
}

void rotate_neighbours(const float* source, const float* cosine, const float* sine,
                       std::size_t half, float* target) noexcept {
  for (std::size_t i = 0; i < half; ++i) {
    const float even = source[2 * i];
    const float odd = source[2 * i + 1];
    target[2 * i] = even * cosine[i] - odd * sine[i];
    target[2 * i + 1] = odd * cosine[i] + even * sine[i];
  }
}

void multiply_vector(const float* weight, std::size_t outputs, std::size_t inputs,
                     const float* source, bool accumulate, float* target) noexcept {
  HWY_DYNAMIC_DISPATCH(multiply)(weight, outputs, inputs, source, accumulate, target);
}

double log_sum_exp(std::span<const float> values) noexcept {
  const float shift = *std::ranges::max_element(values);
  return shift +
         std::log(HWY_DYNAMIC_DISPATCH(exponentials)(values.data(), values.size(), shift, nullptr));
}

void softmax(std::span<float> values) noexcept {
  const float shift = *std::ranges::max_element(values);
  const double sum =
      HWY_DYNAMIC_DISPATCH(exponentials)(values.data(), values.size(), shift, values.data());
  const auto scale = static_cast<float>(1 / sum);
  for (float& value : values) value *= scale;
}

void log_softmax(std::span<float> values) noexcept {
  const auto normaliser = static_cast<float>(log_sum_exp(values));
  for (float& value : values) value -= normaliser;
}

}  // namespace terrace::engine
#endif  // HWY_ONCE
