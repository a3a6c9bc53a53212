#include "terrace/offload/parallel.hpp"

#include <gmock/gmock.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "terrace/offload/topology.hpp"

namespace terrace::offload {
namespace {

using Maker = Result<std::unique_ptr<Parallel>> (*)(const ParallelOptions&);

class ParallelTest : public testing::TestWithParam<Maker> {};

TEST_P(ParallelTest, CallsEachPartOnce) {
  for (const std::size_t threads : {1U, 2U, 5U}) {
    const auto parallel = GetParam()({.threads = threads}).value();
    EXPECT_EQ(parallel->concurrency(), threads);
    for (const std::size_t count : {0U, 1U, 3U, 1000U}) {
      std::vector<std::atomic<int>> calls(count);
      parallel->for_each(count, [&](std::size_t part) { calls[part].fetch_add(1); });
      for (const auto& each : calls) EXPECT_EQ(each.load(), 1);
    }
  }
}

TEST_P(ParallelTest, ServesSeveralCallersAtOnce) {
  const auto parallel = GetParam()({.threads = 3}).value();
  std::atomic<std::size_t> sum{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 3; ++i) {
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        parallel->for_each(20, [&](std::size_t part) { sum.fetch_add(part); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum.load(), 3U * 50U * 190U);
}

TEST_P(ParallelTest, RunsOnTheNodeItIsGiven) {
  const auto topology = Topology::discover().value();
  const NumaNode& node = topology.nodes().front();
  const auto parallel =
      GetParam()({.threads = 2, .numa_node = node.index, .name = "bound"}).value();
  std::atomic<int> calls{0};
  const auto caller = std::this_thread::get_id();
  parallel->for_each(10, [&](std::size_t) {
    calls.fetch_add(1);
    if (std::this_thread::get_id() == caller) return;
    EXPECT_EQ(std::ranges::count(node.cpus, static_cast<CpuIndex>(sched_getcpu())), 1);
  });
  EXPECT_EQ(calls.load(), 10);
}

TEST_P(ParallelTest, RefusesANodeThatTheMachineLacks) {
  const auto parallel = GetParam()({.threads = 2, .numa_node = 4711, .name = "bound"});
  ASSERT_FALSE(parallel);
  EXPECT_THAT(std::string(parallel.error().message()), testing::HasSubstr("4711"));
}

TEST_P(ParallelTest, RefusesZeroThreads) {
  const auto parallel = GetParam()({.threads = 0, .name = "device"});
  ASSERT_FALSE(parallel);
  EXPECT_EQ(parallel.error().code, Errc::invalid_argument);
  EXPECT_THAT(std::string(parallel.error().message()), testing::HasSubstr("device"));
}

INSTANTIATE_TEST_SUITE_P(Makers, ParallelTest,
                         testing::Values(Maker{make_parallel}, Maker{make_plain_parallel}),
                         [](const auto& each) { return each.index == 0 ? "Default" : "Plain"; });

TEST(Topology, HasANodeWithCpus) {
  const auto topology = Topology::discover().value();
  ASSERT_FALSE(topology.nodes().empty());
  EXPECT_FALSE(topology.nodes().front().cpus.empty());
  EXPECT_GE(topology.core_count(), 1U);
}

TEST(Topology, RefusesAnEmptySetAndAnUnknownNode) {
  const auto topology = Topology::discover().value();
  EXPECT_EQ(topology.bind_thread({}).error().code, Errc::invalid_argument);
  EXPECT_EQ(topology.bind_memory({}, 4096).error().code, Errc::invalid_argument);
}

}  // namespace
}  // namespace terrace::offload
