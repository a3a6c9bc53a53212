// Asking a question: figures from what ran, and no figure from what was wrong.
#include "harness/question.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace terrace::bench {
namespace {

/// Keeps busy for a time that a clock can tell from another.
void spin(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

Contender spinning(std::string name, int microseconds) {
  return {.name = std::move(name), .version = "1", .bytes = 1000, .run = [microseconds] {
            spin(std::chrono::microseconds{microseconds});
          }};
}

Question question(std::function<Result<Contest>(bool)> prepare) {
  return {.name = "q", .unit = "s", .prepare = std::move(prepare)};
}

TEST(Ask, TimesARunAndItsPeer) {
  const Row row = ask(question([](bool) -> Result<Contest> {
                        return Contest{.ours = spinning("a", 200), .peer = spinning("b", 2000)};
                      }),
                      {.quick = true});
  ASSERT_TRUE(row.value.has_value()) << row.reason;
  EXPECT_GE(*row.value, 200e-6);
  ASSERT_TRUE(row.peer.has_value());
  EXPECT_EQ(row.peer->name, "b");
  EXPECT_GE(row.peer->value, 2000e-6);
  EXPECT_EQ(row.samples, 2U);
}

TEST(Ask, RatesAreBytesOverSeconds) {
  Question rate = question(
      [](bool) -> Result<Contest> { return Contest{.ours = spinning("a", 1000), .peer = {}}; });
  rate.unit = "B/s";
  const Row row = ask(rate, {.quick = true});
  ASSERT_TRUE(row.value.has_value()) << row.reason;
  EXPECT_LE(*row.value, 1000 / 1000e-6);
  EXPECT_FALSE(row.peer.has_value());
}

TEST(Ask, ChecksThatOutlastTheirRunsAreFew) {
  int checks = 0;
  Question limited = question([&](bool) -> Result<Contest> {
    Contender checked = spinning("a", 10);
    checked.verify = [&checks]() -> Status {
      spin(std::chrono::milliseconds{10});
      ++checks;
      return {};
    };
    return Contest{.ours = checked, .peer = {}};
  });
  limited.seconds_each = 0.1;
  const Row row = ask(limited, {});
  ASSERT_TRUE(row.value.has_value()) << row.reason;
  EXPECT_LT(*row.value, 5e-3) << "checks are not timed";
  EXPECT_GE(row.samples, 5U);
  EXPECT_LE(checks, 1 + 15);
}

TEST(Ask, AWrongResultIsNoFigure) {
  const Row row = ask(question([](bool) -> Result<Contest> {
                        Contender wrong = spinning("a", 10);
                        wrong.verify = []() -> Status {
                          return fail(Errc::corrupt, "one of the rows is wrong");
                        };
                        return Contest{.ours = wrong, .peer = {}};
                      }),
                      {.quick = true});
  EXPECT_FALSE(row.value.has_value());
  EXPECT_EQ(row.reason, "one of the rows is wrong");
}

TEST(Ask, EveryRunIsVerified) {
  const auto runs = std::make_shared<int>(0);
  const auto checks = std::make_shared<int>(0);
  ask(question([=](bool) -> Result<Contest> {
        return Contest{.ours = {.name = "a",
                                .version = "1",
                                .run = [=] { ++*runs; },
                                .verify = [=]() -> Status {
                                  ++*checks;
                                  return {};
                                }},
                       .peer = {}};
      }),
      {.quick = true});
  EXPECT_GT(*runs, 0);
  EXPECT_EQ(*runs, *checks);
}

TEST(Ask, WhatCannotBePreparedSaysWhy) {
  const Row row = ask(
      question([](bool) -> Result<Contest> { return fail(Errc::unsupported, "no device here"); }),
      {.quick = true});
  EXPECT_FALSE(row.value.has_value());
  EXPECT_EQ(row.reason, "no device here");
}

}  // namespace
}  // namespace terrace::bench
