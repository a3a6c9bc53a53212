#include "storage/record_block.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "contract/fuzz.hpp"
#include "terrace/core/rng.hpp"

namespace terrace::offload {
namespace {

constexpr std::uint64_t part_bytes = 4096;

/// A record with checksums that need no page.
PageRecord record(std::uint64_t key, std::uint64_t parts) {
  std::vector<std::uint64_t> more(parts - 1);
  std::ranges::generate(more, Rng(key));
  return {.key = {.high = key, .low = ~key},
          .page = {.offset = key * part_bytes,
                   .bytes = static_cast<std::uint32_t>(parts * part_bytes),
                   .checksums = {key + 1, std::as_bytes(std::span(more))}}};
}

void expect_same(const PageRecord& found, const PageRecord& expected) {
  ASSERT_EQ(found.key, expected.key);
  ASSERT_EQ(found.voids_all, expected.voids_all);
  ASSERT_EQ(found.page.offset, expected.page.offset);
  ASSERT_EQ(found.page.bytes, expected.page.bytes);
  ASSERT_EQ(found.page.checksums.count(), expected.page.checksums.count());
  for (std::size_t part = 0; part < expected.page.checksums.count(); ++part) {
    ASSERT_EQ(found.page.checksums[part], expected.page.checksums[part]);
  }
}

/// The sums of two parts as Debian's libxxhash 0.8.1 has them: a store of one build is read by
/// others.
TEST(PartChecksums, AreThoseOfTheLibrary) {
  constexpr std::uint64_t large_part_bytes = 64 << 10;
  std::vector<std::byte> page(large_part_bytes + 1000);
  for (std::size_t i = 0; i < page.size(); ++i) page[i] = static_cast<std::byte>(i * 7 % 251);
  const PageParts parts(page.size(), large_part_bytes);
  const PartChecksums checksums({.high = 3, .low = 5}, page, parts);
  ASSERT_EQ(checksums.count(), 2U);
  EXPECT_EQ(checksums[0], 0x3ba4a0326fba8b20U);
  EXPECT_EQ(checksums[1], 0x748127a30c277748U);
}

/// Records of any sizes: blocks give back what they were given, and are no more than foreseen.
TEST(RecordBlock, HoldsRecordsOfPagesOfAnyNumberOfParts) {
  const std::uint64_t seed = fuzz_seed(21);
  Rng rng(seed);
  std::vector<std::byte> block(record_block_bytes);
  for (std::uint64_t step = 0; step < std::min<std::uint64_t>(fuzz_steps() / 20, 500); ++step) {
    SCOPED_TRACE(replay(seed, step));
    std::vector<PageRecord> all;
    std::uint64_t more_parts = 0;
    const std::uint64_t most = 1 + rng.below(rng.below(2) == 0 ? 3 : PageParts::count_max);
    for (std::uint64_t i = 0; i < 1 + rng.below(300); ++i) {
      all.push_back(record(rng(), 1 + rng.below(std::min(most, PageParts::count_max))));
      all.back().voids_all = rng.below(9) == 0;
      more_parts += all.back().page.checksums.count() - 1;
    }
    std::uint64_t blocks = 0;
    for (std::span<const PageRecord> left = all; !left.empty(); ++blocks) {
      const std::size_t count = count_of_block(left);
      ASSERT_GT(count, 0U);
      const BlockName name{RecordPurpose::snapshot, step, blocks};
      write_records(block, name, left.first(count));
      const auto found = read_records(block);
      ASSERT_TRUE(found);
      ASSERT_EQ(found->name, name);
      ASSERT_EQ(found->records.size(), count);
      for (std::size_t i = 0; i < count; ++i) expect_same(found->records[i], left[i]);
      left = left.subspan(count);
    }
    ASSERT_LE(blocks, record_blocks_max(all.size(), more_parts));
  }
}

TEST(RecordBlock, HoldsAHundredAndOneRecordsOfPagesOfOnePart) {
  std::vector<PageRecord> all(200, record(1, 1));
  EXPECT_EQ(count_of_block(all), records_of_block);
  EXPECT_EQ(record_blocks_max(records_of_block, 0), 2U);
}

TEST(PageParts, CoverAPageWithoutGapsAndAreNeverTooMany) {
  for (const std::uint64_t bytes :
       {1ULL, 4096ULL, 4097ULL, 1ULL << 20, (1ULL << 20) + 1, 1ULL << 30}) {
    const PageParts parts(bytes, part_bytes);
    ASSERT_LE(parts.count(), PageParts::count_max);
    ASSERT_TRUE(parts.count() > PageParts::count_max / 2 || parts.part_bytes() == part_bytes);
    std::uint64_t end = 0;
    for (std::uint64_t number = 0; number < parts.count(); ++number) {
      ASSERT_EQ(parts.part(number).begin, end);
      end = parts.part(number).end();
    }
    ASSERT_EQ(end, bytes);
    EXPECT_EQ(parts.covering({0, bytes}), (PagePiece{0, bytes}));
    EXPECT_EQ(parts.covering({bytes - 1, 1}), parts.part(parts.count() - 1));
  }
  EXPECT_EQ(PageParts(20'000, 4096).covering({4095, 2}), (PagePiece{0, 8192}));
}

}  // namespace
}  // namespace terrace::offload
