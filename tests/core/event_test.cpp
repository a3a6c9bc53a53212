#include "terrace/core/event.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace terrace {
namespace {

TEST(Event, IsNotSetUntilSomebodySetsIt) {
  const Event event;
  const Event same = event;  // NOLINT(performance-unnecessary-copy-initialization): of one state
  EXPECT_FALSE(event.is_set());
  const Status waited = event.wait(Duration{});
  ASSERT_FALSE(waited);
  EXPECT_EQ(waited.error().code, Errc::not_ready);
  same.set();
  EXPECT_TRUE(event.is_set());
  EXPECT_TRUE(event.wait(Duration{}));
  EXPECT_FALSE(Event().is_set());
}

TEST(Event, RunsACallbackOnceBeforeOrAfter) {
  const Event event;
  int before = 0;
  int after = 0;
  event.then([&] { ++before; });
  EXPECT_EQ(before, 0);
  event.set();
  event.set();
  event.then([&] { ++after; });
  EXPECT_EQ(before, 1);
  EXPECT_EQ(after, 1);
}

TEST(Event, MayGoWithinItsCallback) {
  auto event = std::make_unique<Event>();
  event->then([&] { event.reset(); });
  event->set();
  EXPECT_EQ(event, nullptr);
}

TEST(Event, WakesEachThreadAndRunsEachCallbackOnceWhoeverSetsIt) {
  for (int round = 0; round < 50; ++round) {
    const Event event;
    std::atomic<int> heard{0};
    std::atomic<int> woken{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&] { event.set(); });
      threads.emplace_back([&] { event.then([&] { ++heard; }); });
      threads.emplace_back([&] { woken += event.wait(Duration::max()) ? 1 : 0; });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(heard.load(), 3);
    ASSERT_EQ(woken.load(), 3);
  }
}

}  // namespace
}  // namespace terrace
