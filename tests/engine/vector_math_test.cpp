#include "terrace/engine/vector_math.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "random_floats.hpp"

namespace terrace::engine {
namespace {

// Sizes around every vector width, so that whole vectors and remainders are both taken.
constexpr std::size_t sizes[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 100, 257};

TEST(ConvertToF32, IsExactForEveryHalfAtAnyAlignment) {
  std::vector<std::byte> bytes(2 * 65536 + 1);
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
    for (std::size_t i = 0; i < 65536; ++i) {
      bytes[1 + 2 * i] = static_cast<std::byte>(i & 0xff);
      bytes[2 + 2 * i] = static_cast<std::byte>(i >> 8);
    }
    std::vector<float> wide(65536);
    convert_to_f32(bytes.data() + 1, dtype, wide.size(), wide.data());
    for (std::size_t i = 0; i < wide.size(); ++i) {
      const float expected = load_f32(bytes.data() + 1, dtype, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(wide[i])) << i;
      } else {
        ASSERT_EQ(wide[i], expected) << i;
      }
    }
  }
}

TEST(ConvertToF32, TakesAnyCount) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const std::size_t size : sizes) {
      std::vector<std::byte> narrow(size * size_bytes(dtype));
      for (std::size_t i = 0; i < size; ++i) store_f32(narrow.data(), dtype, i, 0.5F + float(i));
      std::vector<float> wide(size + 1, -1.0F);
      convert_to_f32(narrow.data(), dtype, size, wide.data());
      for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(wide[i], load_f32(narrow.data(), dtype, i));
      ASSERT_EQ(wide[size], -1.0F);
    }
  }
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  for (const std::size_t size : sizes) {
    const auto source = random_floats(size, 1);
    const auto weight = random_floats(size, 2);
    double mean = 0;
    for (const float x : source) mean += double(x) * x / double(size);
    std::vector<float> target(size);
    rms_norm(source.data(), weight.data(), size, 1e-5, target.data());
    for (std::size_t i = 0; i < size; ++i) {
      EXPECT_NEAR(target[i], source[i] * weight[i] / std::sqrt(mean + 1e-5), 1e-6) << size;
    }
  }
}

TEST(RmsNorm, MapsZerosToZeros) {
  std::vector<float> zeros(20);
  rms_norm(zeros.data(), zeros.data(), zeros.size(), 1e-5, zeros.data());
  EXPECT_THAT(zeros, testing::Each(0.0F));
}

TEST(Swiglu, AgreesWithDouble) {
  for (const std::size_t size : sizes) {
    const auto gate = random_floats(size, 3, 12);
    const auto up = random_floats(size, 4);
    std::vector<float> target(size);
    swiglu(gate.data(), up.data(), size, target.data());
    for (std::size_t i = 0; i < size; ++i) {
      const double silu = gate[i] / (1 + std::exp(-double(gate[i])));
      EXPECT_NEAR(target[i], silu * up[i], 4e-6) << size;
    }
  }
}

TEST(Swiglu, StaysFiniteFarFromZero) {
  std::vector<float> gate(16, -1e4F);
  gate[3] = 1e4F;
  const std::vector<float> up(16, 1.0F);
  std::vector<float> target(16);
  swiglu(gate.data(), up.data(), gate.size(), target.data());
  for (std::size_t i = 0; i < target.size(); ++i) EXPECT_NEAR(target[i], i == 3 ? 1e4 : 0, 1e-20);
}

TEST(RotateHalves, TurnsPairsOfTheTwoHalves) {
  for (const std::size_t half : sizes) {
    const auto source = random_floats(2 * half, 5);
    const auto angles = random_floats(half, 6, 3);
    std::vector<float> cosine(half);
    std::vector<float> sine(half);
    for (std::size_t i = 0; i < half; ++i) {
      cosine[i] = std::cos(angles[i]);
      sine[i] = std::sin(angles[i]);
    }
    std::vector<float> target = source;
    rotate_halves(target.data(), cosine.data(), sine.data(), half, target.data());
    for (std::size_t i = 0; i < half; ++i) {
      const double a = source[i];
      const double b = source[half + i];
      EXPECT_NEAR(target[i], a * cosine[i] - b * sine[i], 1e-6);
      EXPECT_NEAR(target[half + i], b * cosine[i] + a * sine[i], 1e-6);
    }
  }
}

TEST(MultiplyVector, AgreesWithDoubleForAnyShape) {
  for (const std::size_t inputs : sizes) {
    for (const std::size_t outputs : {1U, 3U, 4U, 5U, 11U}) {
      const auto weight = random_floats(outputs * inputs, 7);
      const auto source = random_floats(inputs, 8);
      std::vector<float> target(outputs, 2.0F);
      multiply_vector(weight.data(), outputs, inputs, source.data(), true, target.data());
      for (std::size_t o = 0; o < outputs; ++o) {
        double sum = 2;
        for (std::size_t i = 0; i < inputs; ++i) sum += double(weight[o * inputs + i]) * source[i];
        EXPECT_NEAR(target[o], sum, 2e-6 * double(inputs)) << outputs << " x " << inputs;
      }
      const std::vector<float> kept = target;
      multiply_vector(weight.data(), outputs, inputs, source.data(), false, target.data());
      for (std::size_t o = 0; o < outputs; ++o) EXPECT_NEAR(target[o], kept[o] - 2, 1e-5);
    }
  }
}

TEST(StayFinite, AgreesWithRoundingAtEveryPlace) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float edges[] = {65504.0F,   65519.99F,  65520.0F, 3.3895e38F,
                         3.3961e38F, 3.4028e38F, infinity, std::numeric_limits<float>::quiet_NaN()};
  for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
    for (const float edge : edges) {
      float stored = 0;
      store_f32(&stored, dtype, 0, edge);
      const bool finite = std::isfinite(load_f32(&stored, dtype, 0));
      for (const std::size_t size : sizes) {
        std::vector<float> values(size, 1.0F);
        EXPECT_TRUE(stay_finite(values, dtype));
        for (const std::size_t at : {std::size_t{0}, size / 2, size - 1}) {
          for (const float sign : {1.0F, -1.0F}) {
            values[at] = sign * edge;
            EXPECT_EQ(stay_finite(values, dtype), finite)
                << to_string(dtype) << " " << values[at] << " at " << at << " of " << size;
            values[at] = 1.0F;
          }
        }
      }
    }
  }
}

TEST(LogSumExp, AgreesWithDoubleOverAVocabulary) {
  const auto logits = random_floats(50000, 9, 20);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double(logit));
  EXPECT_NEAR(log_sum_exp(logits), std::log(sum), 1e-6);
}

TEST(LogSumExp, SurvivesLargeAndInfiniteLogits) {
  std::vector<float> logits(100, -std::numeric_limits<float>::infinity());
  logits[7] = 1e30F;
  EXPECT_EQ(log_sum_exp(logits), double(1e30F));
}

TEST(Softmax, AddsUpToOneAndMatchesLogSoftmax) {
  for (const std::size_t size : sizes) {
    const auto logits = random_floats(size, 10, 8);
    auto shares = logits;
    auto logs = logits;
    softmax(shares);
    log_softmax(logs);
    double sum = 0;
    for (std::size_t i = 0; i < size; ++i) {
      sum += shares[i];
      EXPECT_NEAR(shares[i], std::exp(logs[i]), 1e-6);
    }
    EXPECT_NEAR(sum, 1, 1e-6);
  }
}

}  // namespace
}  // namespace terrace::engine
