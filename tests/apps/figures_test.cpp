#include "run/figures.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace terrace::apps {
namespace {

TEST(PairedDifference, IsTheMeanOfDifferencesWithItsStandardError) {
  constexpr std::array a{2.0, 4.0, 9.0};
  constexpr std::array b{1.0, 2.0, 6.0};
  const MeanWithError difference = paired_difference(a, b);
  EXPECT_DOUBLE_EQ(difference.mean, 2.0);
  // The standard error is that of the stretches {1} and {2, 3}.
  EXPECT_DOUBLE_EQ(difference.standard_error.value(), std::sqrt((1.0 + 0.25) / 2));
}

TEST(PairedDifference, ErrsByWhatDiffersFromStretchToStretch) {
  // Four stretches of four, alike within each: as much is known as from four steps.
  constexpr std::array<double, 16> a{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
  constexpr std::array<double, 16> zero{};
  const MeanWithError difference = paired_difference(a, zero);
  EXPECT_DOUBLE_EQ(difference.mean, 1.5);
  EXPECT_DOUBLE_EQ(difference.standard_error.value(), std::sqrt(5.0 / 3 / 4));
}

TEST(PairedDifference, OfOneStepHasNoStandardError) {
  constexpr std::array a{2.0};
  EXPECT_FALSE(paired_difference(a, a).standard_error.has_value());
}

TEST(Bits, OfATokenAreItsShareOfTheSoftmax) {
  constexpr std::array<float, 4> even{7, 7, 7, 7};
  EXPECT_DOUBLE_EQ(bits_of(even, TokenId{2}), 2.0);
  constexpr std::array<float, 2> far_apart{-1000, 1000};
  EXPECT_NEAR(bits_of(far_apart, TokenId{1}), 0, 1e-12);
  EXPECT_NEAR(bits_of(far_apart, TokenId{0}), 2000 / std::log(2.0), 1e-6);
}

TEST(MostLikely, TakesTheLowerOfTwoEqualTokens) {
  constexpr std::array<float, 4> logits{0, 3, 3, 1};
  EXPECT_EQ(most_likely(logits), TokenId{1});
}

}  // namespace
}  // namespace terrace::apps
