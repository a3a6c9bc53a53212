#include "work/lanes.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "runtime/scenario.hpp"

namespace terrace {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class LanesTest : public ::testing::Test {
 protected:
  std::unique_ptr<Backend> backend_ = testing::make_scenario_backend({});
  std::unique_ptr<Queue> compute_ = backend_->make_queue({.name = "compute"}).value();
};

TEST_F(LanesTest, HaveARefreshQueueWhereThereAreRefreshes) {
  EXPECT_EQ(Lanes::open(*backend_, false).value().refresh(), nullptr);
  EXPECT_NE(Lanes::open(*backend_, true).value().refresh(), nullptr);
}

TEST_F(LanesTest, ComeToRestOnceAllWorkIsDone) {
  const Lanes lanes = Lanes::open(*backend_, true).value();
  std::atomic<int> done{0};
  const auto count = [&done]() -> Result<std::size_t> {
    ++done;
    return 0;
  };
  for (Queue* const queue : {&lanes.cluster(), lanes.refresh()}) {
    ASSERT_TRUE(queue->call(Phase::cluster, count).has_value());
  }
  const Lanes::Rest rest = lanes.settle(compute_.get(), seconds{20});
  EXPECT_TRUE(rest.at_rest);
  EXPECT_FALSE(rest.failed);
  EXPECT_TRUE(rest.compute_ended);
  EXPECT_EQ(done, 2);
}

TEST_F(LanesTest, CanBeUsedAgainBehindAFailure) {
  const Lanes lanes = Lanes::open(*backend_, false).value();
  const auto failing = []() -> Result<std::size_t> { return fail(Errc::io_error, "to order"); };
  const auto failed = lanes.cluster().call(Phase::cluster, failing);
  ASSERT_TRUE(failed.has_value());
  // Another queue that waits for it fails with it.
  ASSERT_TRUE(lanes.offload().wait_for(*failed).has_value());
  const Lanes::Rest rest = lanes.settle(nullptr, seconds{20});
  EXPECT_TRUE(rest.at_rest);
  EXPECT_TRUE(rest.failed);
  for (Queue* const queue : {&lanes.cluster(), &lanes.offload()}) {
    const auto again = queue->call(Phase::update, [] { return Result<std::size_t>(0); });
    ASSERT_TRUE(again.has_value());
    EXPECT_TRUE(wait(*again, seconds{20}).has_value());
  }
}

TEST_F(LanesTest, SayThatWorkOutlastsThePatience) {
  const Lanes lanes = Lanes::open(*backend_, false).value();
  std::atomic<bool> goes_on{true};
  const auto waits = [&goes_on]() -> Result<std::size_t> {
    while (goes_on) std::this_thread::yield();
    return 0;
  };
  ASSERT_TRUE(lanes.cluster().call(Phase::cluster, waits).has_value());
  EXPECT_FALSE(lanes.settle(compute_.get(), milliseconds{1}).at_rest);
  goes_on = false;
  EXPECT_TRUE(lanes.settle(compute_.get(), seconds{20}).at_rest);
}

}  // namespace
}  // namespace terrace
