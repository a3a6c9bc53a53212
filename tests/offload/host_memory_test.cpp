#include "terrace/offload/host_memory.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <thread>
#include <vector>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/memory_ledger.hpp"
#include "terrace/offload/parallel.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t region = std::size_t{2} << 20;

TEST(HostMemory, UsesFreedRangesAgain) {
  const auto memory = HostMemory::create({}).value();
  std::byte* const first = memory->allocate(region / 2, 64).value();
  std::byte* const second = memory->allocate(region / 2, 64).value();
  EXPECT_EQ(memory->report().mapped_bytes, region);
  memory->release(first, region / 2);
  memory->release(second, region / 2);
  // The two halves are merged: the whole region fits again.
  EXPECT_EQ(memory->allocate(region, 4096).value(), first);
  EXPECT_EQ(memory->report().mapped_bytes, region);
}

TEST(HostMemory, UnmapsOnlyRegionsThatAreWhollyFree) {
  const auto memory = HostMemory::create({}).value();
  std::byte* const first = memory->allocate(region, 64).value();
  std::byte* const second = memory->allocate(100, 64).value();
  memory->release(first, region);
  EXPECT_EQ(memory->trim(), region);
  EXPECT_EQ(memory->report().mapped_bytes, region);
  memory->release(second, 100);
  EXPECT_EQ(memory->trim(), region);
  EXPECT_EQ(memory->report().mapped_bytes, 0U);
}

TEST(HostMemory, KeepsAlignmentsBeyondAHugePage) {
  const auto memory = HostMemory::create({}).value();
  const std::byte* const data = memory->allocate(100, 2 * region).value();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % (2 * region), 0U);
}

TEST(HostMemory, ReportsWhatTheSystemGave) {
  const auto threads = make_parallel({.threads = 2}).value();
  const auto memory = HostMemory::create({.huge_pages = HugePages::automatic,
                                          .numa_node = 0,
                                          .lock = true,
                                          .parallel = threads.get()})
                          .value();
  static_cast<void>(memory->allocate(100, 64).value());
  const HostMemoryReport report = memory->report();
  EXPECT_EQ(report.mapped_bytes, region);
  EXPECT_EQ(report.free_bytes, region - 128);
  // Figures that a system may refuse to grant are reported in whole regions or not at all.
  for (const std::size_t bytes :
       {report.huge_page_bytes, report.locked_bytes, report.placed_bytes}) {
    EXPECT_EQ(bytes % region, 0U);
  }
}

TEST(HostMemory, RefusesAnUnknownNode) {
  EXPECT_EQ(HostMemory::create({.numa_node = 4096}).error().code, Errc::invalid_argument);
}

TEST(HostMemory, RefusesWhatCannotBeMapped) {
  const auto memory = HostMemory::create({}).value();
  for (const std::size_t bytes : {SIZE_MAX, SIZE_MAX / 2}) {
    EXPECT_EQ(memory->allocate(bytes, 64).error().code, Errc::out_of_memory);
  }
}

TEST(HostMemory, GivesDisjointRangesUnderRandomUse) {
  const std::uint64_t seed = fuzz_seed(11);
  Rng rng(seed);
  const auto memory = HostMemory::create({}).value();
  struct Range {
    std::byte* data;
    std::size_t bytes;
    std::byte mark;
  };
  std::vector<Range> ranges;
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    if (ranges.size() < 40 && rng.below(2) == 0) {
      const std::size_t bytes = 1 + rng.below(rng.below(8) == 0 ? 100'000 : 500);
      const std::size_t alignment = std::size_t{1} << rng.below(13);
      std::byte* const data = memory->allocate(bytes, alignment).value();
      ASSERT_EQ(reinterpret_cast<std::uintptr_t>(data) % alignment, 0U) << replay(seed, step);
      ranges.push_back({data, bytes, static_cast<std::byte>(rng())});
      std::memset(data, static_cast<int>(ranges.back().mark), bytes);
    } else if (!ranges.empty()) {
      std::swap(ranges[rng.below(ranges.size())], ranges.back());
      const Range range = ranges.back();
      ASSERT_EQ(range.data[0], range.mark) << replay(seed, step);
      ASSERT_EQ(range.data[range.bytes - 1], range.mark) << replay(seed, step);
      memory->release(range.data, range.bytes);
      ranges.pop_back();
    }
  }
  for (const Range& range : ranges) memory->release(range.data, range.bytes);
  EXPECT_EQ(memory->report().free_bytes, memory->report().mapped_bytes);
}

TEST(MemoryLedger, HoldsItsLimitUnderManyThreads) {
  MemoryLedger ledger("device.memory", 1000);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5000; ++round) {
        if (!ledger.take(300, Purpose::kv)) continue;
        ASSERT_LE(ledger.usage().in_use, 1000U);
        ledger.give(300, Purpose::kv);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger.usage().in_use, 0U);
  EXPECT_EQ(ledger.in_use(Purpose::kv), 0U);
  EXPECT_LE(ledger.usage().peak, 900U);
}

TEST(MemoryLedger, TellsPurposesApart) {
  MemoryLedger ledger("host.memory", SIZE_MAX);
  ASSERT_TRUE(ledger.take(10, Purpose::index));
  ASSERT_TRUE(ledger.take(20, Purpose::staging));
  EXPECT_EQ(ledger.in_use(Purpose::index), 10U);
  EXPECT_EQ(ledger.in_use(Purpose::staging), 20U);
  EXPECT_EQ(ledger.usage().in_use, 30U);
}

}  // namespace
}  // namespace terrace::offload
