#include "doubles/seeded_scheduler.hpp"

#include <gmock/gmock.h>

#include <set>
#include <string>

#include "terrace/offload/host_backend.hpp"

namespace terrace::doubles {
namespace {

using offload::HostBackend;

constexpr Duration patience = std::chrono::seconds(60);

std::string order_of(std::uint64_t seed) {
  SeededScheduler scheduler(seed);
  const auto backend = scheduler.wrap(HostBackend::create({}).value());
  const auto a = backend->make_queue({.name = "a"}).value();
  const auto b = backend->make_queue({.name = "b"}).value();
  std::string order;
  for (int i = 0; i < 6; ++i) {
    for (Queue* const queue : {a.get(), b.get()}) {
      EXPECT_TRUE(queue->call(Phase::model, [&order, queue] {
        order += queue->name();
        return std::size_t{0};
      }));
    }
  }
  EXPECT_TRUE(a->drain(patience));
  EXPECT_TRUE(b->drain(patience));
  return order;
}

TEST(SeededScheduler, RunsTheSameOrderFromTheSameSeedAndOthersFromOthers) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_EQ(order_of(seed), order_of(seed));
    orders.insert(order_of(seed));
  }
  EXPECT_GT(orders.size(), 10U);
}

TEST(SeededScheduler, ReportsADeadlockInsteadOfHanging) {
  SeededScheduler scheduler(1);
  const auto backend = scheduler.wrap(HostBackend::create({}).value());
  const auto a = backend->make_queue({.name = "a"}).value();
  const auto b = backend->make_queue({.name = "b"}).value();
  Status inner;
  Ticket behind_a;
  // A task that waits for work which is ordered after the task itself.
  ASSERT_TRUE(a->call(Phase::model, [&] {
    inner = wait(behind_a, patience);
    return std::size_t{0};
  }));
  ASSERT_TRUE(b->wait_for(*a->record()));
  behind_a = *b->call(Phase::model, [] { return std::size_t{0}; });
  EXPECT_TRUE(b->drain(patience));
  ASSERT_FALSE(inner);
  EXPECT_EQ(inner.error().code, Errc::not_ready);
  EXPECT_THAT(std::string(inner.error().message()), testing::HasSubstr("deadlock"));
}

class Log : public PieceObserver {
 public:
  void before(const PieceView& piece) override { add("+", piece); }
  void after(const PieceView& piece) override { add("-", piece); }
  std::vector<std::string> lines;

 private:
  void add(const char* sign, const PieceView& piece) {
    lines.push_back(sign + std::string(piece.queue) + ":" + std::string(to_string(piece.phase)) +
                    (piece.is_copy ? ":copy" : ""));
  }
};

TEST(SeededScheduler, ShowsEachPieceBeforeAndAfterItRuns) {
  SeededScheduler scheduler(1);
  Log log;
  scheduler.observe(&log);
  const auto backend = scheduler.wrap(HostBackend::create({}).value());
  const auto compute = backend->make_queue({.name = "compute"}).value();
  ASSERT_TRUE(compute->copy(Phase::fetch, {}));
  ASSERT_TRUE(compute->call(Phase::attend, [&]() -> Result<std::size_t> {
    EXPECT_EQ(log.lines.back(), "+compute:attend");
    return fail(Errc::device_error, "broken");
  }));
  ASSERT_TRUE(compute->call(Phase::model, [] { return std::size_t{0}; }));  // skipped
  EXPECT_FALSE(compute->drain(patience));
  EXPECT_THAT(log.lines, testing::ElementsAre("+compute:fetch:copy", "-compute:fetch:copy",
                                              "+compute:attend", "-compute:attend"));
}

TEST(SeededScheduler, StepsOnePieceAtATime) {
  SeededScheduler scheduler(1);
  const auto backend = scheduler.wrap(HostBackend::create({}).value());
  const auto compute = backend->make_queue({.name = "compute"}).value();
  EXPECT_FALSE(scheduler.step());
  int runs = 0;
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(compute->call(Phase::model, [&] {
      ++runs;
      return std::size_t{0};
    }));
  }
  EXPECT_TRUE(scheduler.step());
  EXPECT_EQ(runs, 1);
  EXPECT_TRUE(scheduler.step());
  EXPECT_FALSE(scheduler.step());
  EXPECT_EQ(scheduler.steps(), 2U);
}

}  // namespace
}  // namespace terrace::doubles
