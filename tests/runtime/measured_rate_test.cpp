#include "memory/measured_rate.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace terrace {
namespace {

using std::chrono::seconds;

constexpr TimePoint start{seconds(100)};

TEST(MeasuredRate, IsNotKnownBeforeAMeasurement) {
  MeasuredRate rate;
  rate.note(0, seconds(1), start);
  rate.note(5, seconds(0), start);
  EXPECT_FALSE(rate.seconds_for(1, start));
}

TEST(MeasuredRate, GoesByTheLastMeasurementsMost) {
  MeasuredRate rate;
  rate.note(10, seconds(20), start);
  EXPECT_DOUBLE_EQ(rate.seconds_for(3, start).value(), 6);
  rate.note(10, seconds(5), start);
  EXPECT_DOUBLE_EQ(rate.seconds_for(1, start).value(), 1);
  for (int i = 0; i < 30; ++i) rate.note(10, seconds(5), start);
  EXPECT_NEAR(rate.seconds_for(1, start).value(), 0.5, 1e-6);
}

TEST(MeasuredRate, ForgetsWhatIsOld) {
  MeasuredRate rate(seconds(60));
  rate.note(1, seconds(1), start);
  EXPECT_TRUE(rate.seconds_for(1, start + seconds(60)));
  EXPECT_FALSE(rate.seconds_for(1, start + seconds(61)));
  rate.note(1, seconds(2), start + seconds(70));
  EXPECT_TRUE(rate.seconds_for(1, start + seconds(70)));
}

}  // namespace
}  // namespace terrace
