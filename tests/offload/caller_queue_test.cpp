// A queue whose work runs on the thread that enqueues it. The ordering rule is the contract suite's
// (tests/contract/queue_contract_test.cpp, HostCallerQueues).
#include "terrace/offload/caller_queue.hpp"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "doubles/fault_backend.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr Duration patience = std::chrono::seconds(60);

std::size_t threads_of_process() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<std::size_t>(std::distance(all, std::filesystem::directory_iterator()));
}

TEST(CallerQueue, RunsWorkOnTheThreadThatEnqueuesItBeforeTheCallReturns) {
  const auto backend = HostBackend::create({}).value();
  const std::size_t threads = threads_of_process();
  const auto compute = make_caller_queue(*backend, {}).value();
  std::thread::id ran_on;
  const Ticket ticket = compute
                            ->call(Phase::model,
                                   [&] {
                                     ran_on = std::this_thread::get_id();
                                     return std::size_t{0};
                                   })
                            .value();
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_TRUE(compute->poll(ticket).value());
  int source = 7;
  int target = 0;
  const CopyExtent extent{reinterpret_cast<std::byte*>(&target),
                          reinterpret_cast<const std::byte*>(&source), sizeof(int)};
  ASSERT_TRUE(compute->copy(Phase::update, {&extent, 1}));
  EXPECT_EQ(target, 7);
  EXPECT_EQ(threads_of_process(), threads);
}

TEST(CallerQueue, WaitsOnTheCallingThreadForWorkOfOtherQueues) {
  const auto backend = HostBackend::create({}).value();
  const auto compute = make_caller_queue(*backend, {}).value();
  const auto offload = backend->make_queue({.name = "offload"}).value();
  std::atomic<bool> asked{false};
  bool ran = false;
  const Ticket ticket = offload
                            ->call(Phase::offload,
                                   [&] {
                                     asked.wait(false);
                                     ran = true;
                                     return std::size_t{0};
                                   })
                            .value();
  std::thread opener([&] {
    asked = true;
    asked.notify_all();
  });
  EXPECT_TRUE(compute->wait_for(ticket));
  EXPECT_TRUE(ran);
  opener.join();
}

TEST(CallerQueue, AWaitThatTakesTooLongIsAnErrorOfTheCallAndTheQueueGoesOn) {
  const auto backend = HostBackend::create({}).value();
  const auto compute =
      make_caller_queue(*backend, {.name = "own", .wait_timeout = milliseconds(1)}).value();
  const auto offload = backend->make_queue({.name = "offload"}).value();
  std::atomic<bool> open{false};
  const Ticket ticket = offload
                            ->call(Phase::offload,
                                   [&] {
                                     open.wait(false);
                                     return std::size_t{0};
                                   })
                            .value();
  const Status late = compute->wait_for(ticket);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Errc::not_ready);
  EXPECT_THAT(std::string(late.error().message()), AllOf(HasSubstr("own"), HasSubstr("offload")));
  EXPECT_TRUE(compute->call(Phase::model, [] { return std::size_t{0}; }));
  EXPECT_TRUE(compute->drain(Duration{}));
  EXPECT_GE(compute->counters().waited, milliseconds(1));
  open = true;
  open.notify_all();
  EXPECT_TRUE(offload->drain(patience));
}

TEST(CallerQueue, TransfersTakeTheTimeOfAnImitatedLink) {
  const auto backend = HostBackend::create({.link = {.latency = milliseconds(5)}}).value();
  const auto compute = make_caller_queue(*backend, {}).value();
  const auto began = std::chrono::steady_clock::now();
  ASSERT_TRUE(compute->call(Phase::fetch, [] { return std::size_t{1}; }));
  EXPECT_GE(std::chrono::steady_clock::now() - began, milliseconds(5));
}

TEST(CallerQueue, SaysWhichBackendsHaveNone) {
  const auto wrapped = doubles::FaultBackend::wrap(HostBackend::create({}).value());
  const auto refused = make_caller_queue(*wrapped, {.name = "own"});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(refused.error().message()), HasSubstr("own"));
}

}  // namespace
}  // namespace terrace::offload
