#include "run/timed_pass.hpp"

#include <gtest/gtest.h>

namespace terrace::apps {
namespace {

using std::chrono::milliseconds;

TEST(TimedPass, CountsTimeOfNoPhaseAsUpdateAndNotAsTheModels) {
  StepTimes times{.wall = milliseconds{100}, .clustering_wait = milliseconds{4}};
  const auto busy = [&](Phase phase) -> Duration& {
    return times.queue.busy[static_cast<std::size_t>(phase)];
  };
  busy(Phase::select) = milliseconds{10};
  busy(Phase::fetch) = milliseconds{6};
  busy(Phase::attend) = milliseconds{20};
  busy(Phase::model) = milliseconds{40};
  busy(Phase::update) = milliseconds{2};
  times.queue.waited = milliseconds{8};
  RunSeconds result;
  deal_out(times, 2, result);
  EXPECT_DOUBLE_EQ(result.decode_per_token, 0.050);
  EXPECT_DOUBLE_EQ(result.select, 0.005);
  EXPECT_DOUBLE_EQ(result.fetch, 0.003);
  EXPECT_DOUBLE_EQ(result.attend, 0.010);
  EXPECT_DOUBLE_EQ(result.model, 0.020);
  EXPECT_DOUBLE_EQ(result.wait, 0.006);
  // 2 ms of the queue and 10 ms of the host, over two steps.
  EXPECT_NEAR(result.update, 0.006, 1e-12);
  EXPECT_NEAR(result.attention() + result.model, result.decode_per_token, 1e-12);
}

TEST(TimedPass, WorkBesideTheStepsTakesNothingFromThem) {
  StepTimes times{.wall = milliseconds{10}};
  times.queue.busy[static_cast<std::size_t>(Phase::model)] = milliseconds{11};
  RunSeconds result;
  deal_out(times, 1, result);
  EXPECT_EQ(result.update, 0);
}

}  // namespace
}  // namespace terrace::apps
