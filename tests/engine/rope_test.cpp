#include "terrace/engine/rope.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

namespace terrace::engine {
namespace {

ModelConfig config_with(double theta, RopeScaling scaling = {}) {
  ModelConfig config;
  config.head_dim = 64;
  config.rope_theta = theta;
  config.rope_scaling = std::move(scaling);
  return config;
}

TEST(Rope, TurnsPairIByThetaToTheMinusShareOfI) {
  const Rope rope(config_with(500000));
  ASSERT_EQ(rope.pairs(), 32U);
  EXPECT_EQ(rope.frequency(0), 1.0);
  EXPECT_NEAR(rope.frequency(16), 1 / std::sqrt(500000.0), 1e-15);
  EXPECT_NEAR(rope.frequency(31), std::pow(500000.0, -62.0 / 64), 1e-18);
}

TEST(Rope, StretchesOnlyLongWavelengthsUnderLlama3Scaling) {
  const Llama3RopeScaling scaling{
      .factor = 8, .low_freq_factor = 1, .high_freq_factor = 4, .original_positions = 8192};
  const Rope plain(config_with(500000));
  const Rope scaled(config_with(500000, scaling));
  std::size_t kept = 0;
  std::size_t stretched = 0;
  for (std::size_t i = 0; i < plain.pairs(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain.frequency(i);
    const double ratio = plain.frequency(i) / scaled.frequency(i);
    if (wavelength < 8192.0 / 4) {
      EXPECT_EQ(ratio, 1.0) << i;
      ++kept;
    } else if (wavelength > 8192.0) {
      EXPECT_NEAR(ratio, 8.0, 1e-12) << i;
      ++stretched;
    } else {
      EXPECT_GT(ratio, 1.0) << i;
      EXPECT_LT(ratio, 8.0) << i;
    }
    const double before = i == 0 ? 2.0 : scaled.frequency(i - 1);
    EXPECT_LT(scaled.frequency(i), before) << i;
  }
  EXPECT_GT(kept, 0U);
  EXPECT_GT(stretched, 0U);
  EXPECT_LT(kept + stretched, plain.pairs());
}

TEST(Rope, DividesAllFrequenciesUnderLinearScaling) {
  const Rope plain(config_with(10000));
  const Rope scaled(config_with(10000, LinearRopeScaling{.factor = 8}));
  for (std::size_t i = 0; i < plain.pairs(); ++i) {
    EXPECT_DOUBLE_EQ(scaled.frequency(i), plain.frequency(i) / 8);
  }
  EXPECT_EQ(scaled.attention_factor(), 1);
}

TEST(Rope, GrowsItsBaseWithTheLengthUnderDynamicScaling) {
  ModelConfig config = config_with(10000, DynamicRopeScaling{.factor = 4});
  config.positions_max = 2048;
  const Rope plain(config_with(10000));
  for (const std::size_t length : {0U, 1U, 2048U}) {
    const Rope fits(config, length);
    for (std::size_t i = 0; i < plain.pairs(); ++i) {
      EXPECT_DOUBLE_EQ(fits.frequency(i), plain.frequency(i)) << length;
    }
  }
  // 4 x 3 - 3 = 9 at three times the length.
  const Rope longer(config, 3 * 2048);
  const double base = 10000 * std::pow(9.0, 64.0 / 62);
  EXPECT_NEAR(longer.frequency(31), std::pow(base, -62.0 / 64), 1e-18);
  EXPECT_EQ(longer.frequency(0), 1);
}

TEST(Rope, KeepsFastPairsAndStretchesSlowOnesUnderYarn) {
  const Rope plain(config_with(10000));
  const Rope scaled(config_with(
      10000, YarnRopeScaling{.factor = 16, .attention_factor = 1.25, .original_positions = 4096}));
  // Pair 20 turns 4096 / (2 pi) / 10000^(40/64) = 2.06 times, between 1 and 32.
  EXPECT_DOUBLE_EQ(scaled.frequency(0), plain.frequency(0));
  EXPECT_LT(scaled.frequency(20), plain.frequency(20));
  EXPECT_GT(scaled.frequency(20), plain.frequency(20) / 16);
  EXPECT_DOUBLE_EQ(scaled.frequency(31), plain.frequency(31) / 16);
  EXPECT_EQ(scaled.attention_factor(), 1.25);
  RopeAngles angles = RopeAngles::create(1, scaled.pairs()).value();
  angles.prepare(scaled, 3, 1);
  EXPECT_NEAR(angles.cosine(0)[0], 1.25 * std::cos(3.0), 1e-6);
  EXPECT_NEAR(angles.sine(0)[0], 1.25 * std::sin(3.0), 1e-6);
}

TEST(Rope, ChangesItsDivisorsAboveTheOriginalContextUnderLongrope) {
  const Rope plain(config_with(10000));
  LongRopeScaling scaling{.attention_factor = 1.5, .original_positions = 4096};
  for (std::size_t i = 0; i < plain.pairs(); ++i) {
    scaling.short_factors.push_back(1.0 + static_cast<double>(i));
    scaling.long_factors.push_back(2.0 + static_cast<double>(i));
  }
  const ModelConfig config = config_with(10000, scaling);
  for (std::size_t i = 0; i < plain.pairs(); ++i) {
    const auto place = static_cast<double>(i);
    EXPECT_DOUBLE_EQ(Rope(config).frequency(i), plain.frequency(i) / (1 + place));
    EXPECT_DOUBLE_EQ(Rope(config, 4096).frequency(i), plain.frequency(i) / (1 + place));
    EXPECT_DOUBLE_EQ(Rope(config, 4097).frequency(i), plain.frequency(i) / (2 + place));
  }
  EXPECT_EQ(Rope(config).attention_factor(), 1.5);
}

TEST(RopeAngles, AreRightFarOut) {
  const Rope rope(config_with(10000));
  RopeAngles angles = RopeAngles::create(8, rope.pairs()).value();
  for (const std::size_t first : {std::size_t{0}, std::size_t{32760}, std::size_t{1} << 20}) {
    angles.prepare(rope, first, 8);
    for (std::size_t row = 0; row < 8; ++row) {
      for (std::size_t i = 0; i < rope.pairs(); ++i) {
        const double angle = double(first + row) * std::pow(10000.0, -double(i) / 32);
        EXPECT_NEAR(angles.cosine(row)[i], std::cos(angle), 1e-7);
        EXPECT_NEAR(angles.sine(row)[i], std::sin(angle), 1e-7);
      }
    }
  }
}

TEST(RopeAngles, FollowWhenThePositionMoves) {
  const Rope rope(config_with(10000));
  RopeAngles angles = RopeAngles::create(4, rope.pairs()).value();
  angles.prepare(rope, 10, 2);
  angles.prepare(rope, 10, 4);  // more rows than before
  EXPECT_NEAR(angles.sine(3)[0], std::sin(13.0), 1e-7);
  angles.prepare(rope, 11, 1);
  EXPECT_NEAR(angles.sine(0)[0], std::sin(11.0), 1e-7);
  angles.prepare(rope, 11, 2);  // must not take the rows left over from position 10
  EXPECT_NEAR(angles.sine(1)[0], std::sin(12.0), 1e-7);
}

}  // namespace
}  // namespace terrace::engine
