#include "server/workers.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <latch>
#include <string>

namespace terrace::node {
namespace {

/// Runs endings until so many jobs have ended.
void run_to_end(Workers& workers) {
  while (workers.under_way() > 0) {
    pollfd ended{.fd = workers.descriptor(), .events = POLLIN, .revents = 0};
    ::poll(&ended, 1, -1);
    workers.run_endings();
  }
}

TEST(Workers, RunEndingsOnTheThreadThatAsks) {
  Workers workers;
  ASSERT_TRUE(workers.open(3));
  std::string order;
  for (int i = 0; i < 5; ++i) {
    workers.start(1, [&order]() -> Ending { return [&order] { order += 'e'; }; });
  }
  run_to_end(workers);
  EXPECT_EQ(order, "eeeee");
}

TEST(Workers, TakeClientsInTurn) {
  Workers workers;
  ASSERT_TRUE(workers.open(1));
  std::latch begin(1);
  std::string order;  // of jobs: one thread runs them
  workers.start(9, [&]() -> Ending {
    begin.wait();
    return {};
  });
  for (int i = 0; i < 3; ++i) {
    workers.start(1, [&]() -> Ending { return order += 'a', Ending{}; });
  }
  workers.start(2, [&]() -> Ending { return order += 'b', Ending{}; });
  workers.start(3, [&]() -> Ending { return order += 'c', Ending{}; });
  begin.count_down();
  run_to_end(workers);
  EXPECT_EQ(order, "abcaa");
}

TEST(Workers, OneClientLeavesThreadsToOthers) {
  Workers workers;
  ASSERT_TRUE(workers.open(4));
  std::latch end(1);
  for (int i = 0; i < 8; ++i) {
    workers.start(1, [&]() -> Ending {
      end.wait();
      return {};
    });
  }
  // It runs though eight jobs of another client wait.
  workers.start(2, [&]() -> Ending {
    end.count_down();
    return {};
  });
  run_to_end(workers);
  EXPECT_EQ(workers.under_way(), 0U);
}

TEST(Workers, JobsThatHaveNotBegunAreDroppedAtTheEnd) {
  std::latch end(1);
  int ran = 0;
  {
    Workers workers;
    ASSERT_TRUE(workers.open(1));
    workers.start(1, [&]() -> Ending { return ++ran, end.count_down(), Ending{}; });
    end.wait();
  }
  EXPECT_EQ(ran, 1);
}

}  // namespace
}  // namespace terrace::node
