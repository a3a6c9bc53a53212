#include "terrace/offload/host_pages.hpp"

#include <gmock/gmock.h>

#include <cstring>
#include <optional>
#include <vector>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"
#include "terrace/offload/host_backend.hpp"

namespace terrace::offload {
namespace {

constexpr std::size_t page_bytes = 64;

TEST(HostPagePool, NamesHostMemoryWhenItIsExhausted) {
  const auto backend = HostBackend::create({.host_memory_limit = 3 * page_bytes}).value();
  const auto pool = HostPagePool::create(*backend, {.page_bytes = page_bytes}).value();
  PageTable table(*pool);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.append());
  const auto refused = table.append();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::out_of_memory);
  EXPECT_THAT(std::string(refused.error().message()), testing::HasSubstr("host.memory"));
  EXPECT_THAT(std::string(pool->check_room(1).error().message()),
              testing::AllOf(testing::StartsWith("host.memory is 192 B, 192 B in use"),
                             testing::EndsWith(": raise it, or name a file for rows in "
                                               "tier.nvme.path")));
  EXPECT_EQ(table.size(), 3U);
  table.truncate(2);
  EXPECT_TRUE(table.append());
}

TEST(HostPagePool, AdvisesNoFileWherePagesHaveAShareOfTheHost) {
  const auto backend = HostBackend::create({.host_memory_limit = 4 * page_bytes}).value();
  const auto pool =
      HostPagePool::create(*backend, {.page_bytes = page_bytes, .bytes_max = 3 * page_bytes})
          .value();
  PageTable table(*pool);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(table.append());
  EXPECT_THAT(std::string(pool->check_room(1).error().message()),
              testing::AllOf(testing::HasSubstr("of which pages may take 192 B"),
                             testing::EndsWith(": raise it")));
}

TEST(HostPagePool, GrowsByRegionsThatDoubleUpToTheLargest) {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const auto backend = HostBackend::create({}).value();
  const auto pool =
      HostPagePool::create(*backend, {.page_bytes = mib, .region_bytes = 8 * mib}).value();
  PageTable table(*pool);
  std::vector<std::size_t> counts;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(table.append());
    if (counts.empty() || counts.back() != pool->page_count()) counts.push_back(pool->page_count());
  }
  EXPECT_THAT(counts, testing::ElementsAre(4, 8, 16, 24));
}

TEST(PageTable, AForkSharesPagesUntilOneIsWritten) {
  const auto backend = HostBackend::create({}).value();
  const auto pool = HostPagePool::create(*backend, {.page_bytes = page_bytes}).value();
  PageTable table(*pool);
  for (int i = 0; i < 2; ++i) std::memset(table.append().value(), i, page_bytes);
  PageTable branch = table.fork();
  EXPECT_EQ(pool->pages_in_use(), 2U);
  std::byte* const own = branch.make_writable(1).value();
  EXPECT_NE(own, table[1]);
  EXPECT_EQ(own[page_bytes - 1], std::byte{1});
  EXPECT_EQ(branch[0], table[0]);
  EXPECT_EQ(pool->pages_in_use(), 3U);
  EXPECT_EQ(table.make_writable(1).value(), table[1]);  // not shared any more: not copied
  EXPECT_EQ(pool->pages_in_use(), 3U);
  EXPECT_EQ(branch[1], own);
}

TEST(PageTable, AFailedCopyLeavesThePageShared) {
  const auto backend = HostBackend::create({.host_memory_limit = page_bytes}).value();
  const auto pool = HostPagePool::create(*backend, {.page_bytes = page_bytes}).value();
  PageTable table(*pool);
  ASSERT_TRUE(table.append());
  PageTable branch = table.fork();
  EXPECT_FALSE(branch.make_writable(0));
  EXPECT_EQ(branch[0], table[0]);
  EXPECT_EQ(pool->references(table.pages()[0]), 2U);
}

/// A table, and a model of it: a page holds one number.
struct Both {
  static constexpr std::uint64_t hole = 0;  ///< in the model; no value is

  PageTable table;
  std::vector<std::uint64_t> model;

  void expect_same(std::size_t page) const {
    std::uint64_t found = hole;
    if (table[page] != nullptr) std::memcpy(&found, table[page], sizeof found);
    EXPECT_EQ(found, model[page]);
  }
};

/// Tables against vectors of values.
TEST(PageTable, KeepsContentsAndCountsUnderRandomForksWritesAndTruncates) {
  const std::uint64_t seed = fuzz_seed(8);
  Rng rng(seed);
  const auto backend = HostBackend::create({.host_memory_limit = 60 * page_bytes}).value();
  const auto pool =
      HostPagePool::create(*backend, {.page_bytes = page_bytes, .region_bytes = 7 * page_bytes})
          .value();
  std::vector<Both> all;
  const auto write = [](std::byte* page, std::uint64_t value) {
    std::memcpy(page, &value, sizeof value);
  };
  for (std::uint64_t step = 0; step < fuzz_steps(); ++step) {
    SCOPED_TRACE(replay(seed, step));
    if (all.empty()) all.push_back({PageTable(*pool), {}});
    const std::size_t at = rng.below(all.size());
    auto& [table, model] = all[at];
    const std::uint64_t value = rng() | 1;
    switch (rng.below(9)) {
      case 0:
        if (all.size() < 8) {
          Both branch{table.fork(), model};
          all.push_back(std::move(branch));
        }
        break;
      case 1:
        table.truncate(model.size() / 2);
        model.resize(model.size() / 2);
        break;
      case 2:
        if (rng.below(4) == 0) {
          std::swap(all[at], all.back());
          all.pop_back();
        }
        break;
      case 3:
      case 4:
        if (!model.empty()) {
          const std::size_t page = rng.below(model.size());
          if (model[page] == Both::hole) break;
          if (const auto memory = table.make_writable(page)) {
            write(*memory, value);
            model[page] = value;
          }
        }
        break;
      case 5:
        if (!model.empty()) {
          const std::size_t page = rng.below(model.size());
          table.release(page);
          model[page] = Both::hole;
          EXPECT_FALSE(table.shared(page));
        }
        break;
      default:
        if (const auto memory = table.append()) {
          write(*memory, value);
          model.push_back(value);
        } else {
          ASSERT_EQ(pool->pages_in_use(), 60U);
        }
    }
    for (const Both& each : all) {
      ASSERT_EQ(each.table.size(), each.model.size());
      if (each.model.empty()) continue;
      each.expect_same(rng.below(each.model.size()));
    }
  }
  all.clear();
  EXPECT_EQ(pool->pages_in_use(), 0U);
}

}  // namespace
}  // namespace terrace::offload
