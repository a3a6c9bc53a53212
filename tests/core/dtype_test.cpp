#include "terrace/core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace terrace {
namespace {

TEST(HalfConversion, KeepsEveryHalfThroughF32) {
  for (std::uint32_t bits = 0; bits <= 0xffffU; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      ASSERT_EQ(f32_to_f16(value), half) << std::hex << bits;
    }
  }
}

TEST(HalfConversion, RoundsToNearestWithTiesToEven) {
  // Every neighbour pair of finite halves: the midpoint goes to the even one, a nudge decides.
  for (std::uint32_t bits = 0; bits < 0x7bffU; ++bits) {
    const float low = f16_to_f32(static_cast<std::uint16_t>(bits));
    const float high = f16_to_f32(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(f32_to_f16(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, low)), bits);
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, high)), bits + 1);
  }
}

TEST(HalfConversion, SaturatesToInfinity) {
  EXPECT_EQ(f32_to_f16(65519.0F), 0x7bffU);
  EXPECT_EQ(f32_to_f16(65520.0F), 0x7c00U);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00U);
}

TEST(Bfloat16Conversion, RoundsToNearestAndKeepsNan) {
  EXPECT_EQ(f32_to_bf16(1.0F), 0x3f80U);
  EXPECT_EQ(f32_to_bf16(1.00390625F), 0x3f80U);  // half-way between 1 and 1.0078125, ties to even
  EXPECT_EQ(f32_to_bf16(1.01171875F), 0x3f82U);
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::nanf("")))));
}

TEST(StoreF32, IsReadBackByLoadF32) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    alignas(4) std::byte array[16] = {};
    store_f32(array, dtype, 2, -1.5F);
    EXPECT_EQ(load_f32(array, dtype, 2), -1.5F);
    EXPECT_EQ(load_f32(array, dtype, 1), 0.0F);
  }
}

}  // namespace
}  // namespace terrace
