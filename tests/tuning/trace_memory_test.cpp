// Writing and reading a trace takes as much memory for ten times as many records.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "core/temporary_folder.hpp"
#include "terrace/tuning/layer_traffic.hpp"
#include "terrace/tuning/replay.hpp"
#include "tuning/made_up_trace.hpp"

namespace {

thread_local std::size_t live_bytes = 0;
thread_local std::size_t peak_bytes = 0;

void* counted(void* memory) noexcept {
  if (memory != nullptr) live_bytes += malloc_usable_size(memory);
  peak_bytes = std::max(peak_bytes, live_bytes);
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) live_bytes -= malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

// Not inlined: g++ 12 takes the pair of inlined ones for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  if (void* const memory = counted(std::malloc(bytes))) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  return counted(std::malloc(bytes));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { release(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  release(memory);
}

namespace terrace::tuning {
namespace {

constexpr std::size_t few_steps = 4'000;

/// Bytes beyond those there are before, at the most, while `act` runs.
template <typename Act>
std::size_t peak_of(Act&& act) {
  const std::size_t before = live_bytes;
  peak_bytes = before;
  act();
  return peak_bytes - before;
}

void write(const std::filesystem::path& path, std::size_t steps) {
  write_made_up_tokens(path, {.layers = 1, .wanted = 20, .steps = steps});
}

std::size_t read(const std::filesystem::path& path, std::vector<TraceRecord>* kept = nullptr) {
  auto reader = TraceReader::open(path).value();
  std::size_t records = 0;
  for (TraceRecord record; reader.next(record).value(); ++records) {
    if (kept != nullptr) kept->push_back(record);
  }
  return records;
}

TEST(TraceMemory, DoesNotGrowWithTheTrace) {
  const TemporaryFolder folder;
  const std::size_t to_write_few = peak_of([&] { write(folder / "few", few_steps); });
  const std::size_t to_write_many = peak_of([&] { write(folder / "many", 10 * few_steps); });
  EXPECT_GT(std::filesystem::file_size(folder / "few"), std::size_t{1} << 19) << "several chunks";
  EXPECT_LT(to_write_many, 1.1 * static_cast<double>(to_write_few));

  std::size_t records = 0;
  const std::size_t to_read_few = peak_of([&] { records = read(folder / "few"); });
  EXPECT_EQ(records, 2 * few_steps);
  const std::size_t to_read_many = peak_of([&] { records = read(folder / "many"); });
  EXPECT_EQ(records, 20 * few_steps);
  EXPECT_LT(to_read_many, 1.1 * static_cast<double>(to_read_few));
}

TEST(TraceMemory, IsSeenToGrowWhereItDoes) {
  const TemporaryFolder folder;
  write(folder / "few", few_steps);
  std::vector<TraceRecord> kept;
  const std::size_t streamed = peak_of([&] { read(folder / "few"); });
  EXPECT_GT(peak_of([&] { read(folder / "few", &kept); }), 2 * streamed);
}

/// Bytes that a replay keeps of each unit at the most: of a trace that names but the last of many,
/// and then one more, for which arrays double.
double bytes_of_unit(const std::filesystem::path& path, const CacheOptions& cache) {
  constexpr UnitKey units = 1U << 18U;
  TraceHead head = made_up_head({});
  head.shape.layers = 2;
  auto writer = TraceWriter::create(path, head).value();
  for (std::size_t layer = 0; layer < head.shape.layers; ++layer) {
    for (const UnitKey unit : {units - 1, units}) {
      writer.append({.layer = layer, .position = 100, .units = {{.unit = unit, .rows = 1}}});
    }
  }
  EXPECT_TRUE(writer.finish(std::nullopt).has_value());
  const std::size_t peak = peak_of([&] {
    auto reader = TraceReader::open(path).value();
    auto cutter = TrafficCutter::create(head, head.recorded()).value();
    auto replay = CacheReplay::create(head, {.cache = cache}).value();
    EXPECT_TRUE(reader.for_each(
        [&](const TraceRecord& record) { replay.apply(record, cutter.cut(record)); }));
  });
  return static_cast<double>(peak) / static_cast<double>(head.shape.layers * units);
}

TEST(TraceMemory, HasABoundInAReplayThatWantsNextToNoUnit) {
  constexpr double most = std::size_t{1} << 30;
  const TemporaryFolder folder;
  for (const auto& entry : policies::replacement_policies()) {
    if (entry.needs_foresight) continue;
    for (const char* const admission : {"always", "refill"}) {
      const CacheOptions cache{
          .policy = std::string(entry.name), .admission = admission, .tokens = 1 << 16};
      const double bytes = bytes_of_unit(folder / "t", cache);
      EXPECT_LT(bytes * static_cast<double>(free_units), most) << entry.name << " " << admission;
    }
  }
}

}  // namespace
}  // namespace terrace::tuning
