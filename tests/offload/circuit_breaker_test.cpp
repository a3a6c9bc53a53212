#include "remote/circuit_breaker.hpp"

#include <gmock/gmock.h>

namespace terrace::offload {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint begin{std::chrono::hours(5)};
constexpr BreakerOptions options{.retry_first = milliseconds(100), .retry_max = milliseconds(450)};

TEST(CircuitBreaker, IsClosedUntilAFailure) {
  CircuitBreaker breaker(options);
  EXPECT_FALSE(breaker.is_open());
  EXPECT_LE(breaker.next_attempt(), TimePoint{});
  breaker.failed(begin);
  EXPECT_TRUE(breaker.is_open());
  EXPECT_EQ(breaker.next_attempt(), begin + milliseconds(100));
}

TEST(CircuitBreaker, DoublesTheTimeUpToTheMost) {
  CircuitBreaker breaker(options);
  for (const int wait : {100, 200, 400, 450, 450}) {
    breaker.failed(begin);
    EXPECT_EQ(breaker.next_attempt(), begin + milliseconds(wait));
    EXPECT_TRUE(breaker.is_open());
  }
}

TEST(CircuitBreaker, BeginsAnewAfterASuccess) {
  CircuitBreaker breaker(options);
  breaker.failed(begin);
  breaker.failed(begin);
  breaker.succeeded();
  EXPECT_FALSE(breaker.is_open());
  breaker.failed(begin);
  EXPECT_EQ(breaker.next_attempt(), begin + milliseconds(100));
}

TEST(CircuitBreaker, HasAnAttemptAtTheEndOfTimeForAnyLengthOfTime) {
  CircuitBreaker breaker({.retry_first = Duration::max() / 2, .retry_max = Duration::max()});
  for (int i = 0; i < 4; ++i) breaker.failed(begin);
  EXPECT_EQ(breaker.next_attempt(), TimePoint::max());
}

}  // namespace
}  // namespace terrace::offload
