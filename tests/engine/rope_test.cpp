#include "terrace/engine/rope.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <numbers>

namespace terrace::engine {
namespace {

ModelConfig config_with(double theta, std::optional<Llama3RopeScaling> scaling = {}) {
  ModelConfig config;
  config.head_dim = 64;
  config.rope_theta = theta;
  config.rope_scaling = scaling;
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
